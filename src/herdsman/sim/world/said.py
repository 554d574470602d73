"""What each fault does, in a sentence for a person who chooses among them."""

from collections.abc import Mapping
from types import MappingProxyType

from herdsman.sim.world.faults import Fault

SAID: Mapping[Fault, str] = MappingProxyType(
    {
        Fault.CRASH: "A process is killed, at any point where it speaks to others.",
        Fault.STOP: "A process stands still for a while, and wakes where it was.",
        Fault.TWIN: "A process stands still, its successor is started meanwhile, and then it wakes.",
        Fault.PARTITION: "Nothing that a process asks of others gets through for a while.",
        Fault.CUT_BEFORE: "The connection to the database breaks before the commit.",
        Fault.CUT_AFTER: "The connection to the database breaks after the commit: its outcome is unknown.",
        Fault.ROLLED_BACK: "All statements of a transaction have run, and then it is undone.",
        Fault.CONTENDED: "Another transaction was in the way: all of it is done again.",
        Fault.DATABASE_AWAY: "The database answers nobody for a while.",
        Fault.DATABASE_OUT: "The database answers nobody for minutes.",
        Fault.CLOCK_JUMP: "The clock of the database is set, forwards or backwards.",
        Fault.LOST_REQUEST: "What a worker says never arrives.",
        Fault.LOST_REPLY: "What a worker says is done, and the answer is lost.",
        Fault.DOUBLED_REQUEST: "What a worker says arrives twice.",
        Fault.NO_CAPACITY: "The provider has no machine left.",
        Fault.PROVIDER_AWAY: "The provider answers nothing, and asks to be left alone for a moment.",
        Fault.REJECTED: "The provider refuses the key until a person has mended it.",
        Fault.SPAWN_UNANSWERED: "A machine is started, and the answer is lost.",
        Fault.SPAWN_VANISHED: "A machine is not started, and nobody says so.",
        Fault.SPAWN_LATE: "The answer to a start is lost, and the machine appears long after it.",
        Fault.LISTING_LAG: "A new machine is missing from listings for a while, and one that has ended is still there.",
        Fault.PROVIDER_OUT: "The provider answers nobody for longer than a machine may be unseen.",
        Fault.LEFTOVER: "A machine of the herd lives on from before, and no row knows it.",
        Fault.LISTING_EMPTY: "The provider lists no machine at all.",
        Fault.FIND_LIES: "The provider does not know a machine that lives.",
        Fault.END_IGNORED: "The provider accepts the end of a machine, and does nothing.",
        Fault.END_UNANSWERED: "A machine is ended, and the answer is lost.",
        Fault.PREEMPTED: "A machine is taken away without a word.",
        Fault.DIES_AT_START: "A machine exits before its worker has reported, and the provider says so.",
        Fault.NEVER_BOOTS: "A machine runs, and nobody reports for duty from it.",
        Fault.POISON: "A job kills whoever runs it.",
        Fault.CRASHING_HANDLER: "A job ends the process of its handler.",
        Fault.FAILING_HANDLER: "A job fails, at first or always.",
        Fault.HANGING_HANDLER: "A job runs far past its time.",
        Fault.DEAF_HANDLER: "A job hears no cancel.",
        Fault.SERVICE_AWAY: "The external service does not answer for a while.",
        Fault.SERVICE_FORGETS: "The external service is restarted, and knows no job any more.",
        Fault.SERVICE_MUTE: "The external service does not say that a job is over.",
        Fault.SERVICE_UNANSWERED: "The external service has taken a job, and the answer is lost.",
        Fault.SERVICE_VANISHED: "A job never reaches the external service, and nobody says so.",
        Fault.BUS_AWAY: "Redis answers nobody for a while.",
        Fault.BUS_FLUSHED: "Redis forgets everything.",
        Fault.BUS_UNANSWERED: "Redis has done what it was asked, and the answer is lost.",
        Fault.STREAM_DELETED: "Somebody deletes a stream, or only its group.",
        Fault.ENTRY_LOST: "An entry of a stream is lost.",
        Fault.ENTRY_DOUBLED: "An entry of a stream is read twice.",
        Fault.ENTRY_FORGED: "Somebody adds an entry that no job stands behind, or that says something wrong of one.",
    }
)
