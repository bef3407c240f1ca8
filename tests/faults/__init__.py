"""Faults and hostile input, as one table: `python -m tests.faults -o FOLDER`, or `make faults`.

What ran is noted in FOLDER, so a stopped table goes on; `test_faults.py` runs a few cases of each area. In reading
order:

    ledger.py        cases, what became of them, and the table
    children.py      a command in a child forked from a process that has torch loaded
    results.py       what a folder holds, times left out: what "equal" means
    stages.py        the commands that are interrupted, and the small data they work on
    interrupted.py   killed at random moments; killed, or out of room, at a chosen file event
    surroundings.py  a full file system, a read-only one, a slow one, two processes, the clock set back, no cache
    damage.py        what can be done to bytes, to text and to JSON
    data_sets.py     damaged data of every format, looked at and converted
    artefacts.py     damaged checkpoints, run folders and indexes
    questions.py     requests to the page's API, in process and by raw sockets
    __main__.py      the command
"""
