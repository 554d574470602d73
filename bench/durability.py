"""What a database says of itself that bears on speed: how safe a commit is, and how much memory it has."""

from bench.databases import connected

_QUESTIONS = {
    "sqlite": ("PRAGMA {}", ("journal_mode", "synchronous")),
    "postgresql": ("SHOW {}", ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers")),
    "mysql": (
        "SELECT @@GLOBAL.{}",
        ("innodb_flush_log_at_trx_commit", "innodb_flush_method", "innodb_buffer_pool_size", "log_bin"),
    ),
}


def settings_of(url: str) -> str:
    with connected(url) as (dialect, connection):
        question, names = _QUESTIONS[dialect]
        cursor = connection.cursor()
        found: list[str] = []
        for name in names:
            cursor.execute(question.format(name))
            found.append(f"{name}={cursor.fetchone()[0]}")
    return ", ".join(found)
