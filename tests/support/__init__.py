"""What tests share. A helper that only one folder needs lives in that folder.

Databases and time
    servers             PostgreSQL, PgBouncer, MariaDB and Redis, each started for the tests and ended with them
    databases           a fresh SQLite, PostgreSQL or MariaDB for each test, and a clock that the test moves
    power_cut           a transaction that is cut off at the statement that the test chooses
    rows                rows written past every command, for what the databases guard by themselves
    redis_streams       a private Redis, and the streams of a replica whose parts the test moves
    threads             many threads that begin together, and all of their answers

Jobs, workers and fleets, with everything filled in that a test does not name
    builders            jobs, workers and claims in a database
    job_fields          a job as the server shows it, field by field
    gpus                GPUs that exist only in the tables, and leases of them
    pools               pools, and a control loop that keeps them
    fleets              snapshots of a fleet for the pure rules, and hypothesis strategies for them
    why_situations      situations in which a job waits, made by the same commands as in life
    why_promises        what `herdsman why` and `herdsman eta` promise of each of them

Programs
    shell               a command as a person types it, in a directory and an environment of its own
    preloaded_commands  the process that `shell` forks commands from, so that they need not be loaded again
    preloaded_client    `herdsman` in a page, run by that process
    up_command          `herdsman up` from its greeting to Ctrl-C
    api_server          the API over a database, in a thread of the test's process
    apps                the app of a server; its routes are built once for each process
    control_loop        a whole control loop at a fake Runpod, in a time that the test moves
    top_fleet           jobs and workers that stand still, for `herdsman top`
    top_server          a server that answers `herdsman top` from them
    top_terminal        a terminal with `herdsman top` in it, and its screen as lines

Services
    runpod              a provider at a fake Runpod; every word is checked against the published specification
    comfyui             workflows for the fake ComfyUI, and connectors at it
    comfyui_workflows   workflows and a place for their files, for tests of the connector
    comfyui_client      a plain client of a ComfyUI, for tests of the fake
    http_service        a small HTTP service that can be told to fail in every way that services do
    http_options        options of a few services for the http connector
    memory_service      a service in this process, with a connector as somebody would write it

About the tests themselves
    amounts             how much a test does by default, and in `make soak`
    setting_readers     which line reads each setting; `python -m tests.support.setting_readers` prints the list
"""
