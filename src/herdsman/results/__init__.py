"""Where the files of jobs are kept: a directory, or an object store."""
