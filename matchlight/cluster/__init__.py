"""Work that is divided into shards and done by many processes, on one machine or on several.

    with ray_workers("head:6379") as workers, filling(out, "list.json", settings) as results:
        parts = Parts(results.read(workers, "shards/"))             # a broken shard is left out
        results.settle(parts, workers.finish(write_one, settings, jobs(parts), "features", total=len(parts)))

A shard is done once: its file is there when it is, and whoever asks again asks for the missing ones only. All machines
see the data and the results under the same names. In reading order:

    jobs.py         what a shard of work is, and how a worker does it
    ray_workers.py  the only file that knows Ray; another engine has the same `finish`
    data_parts.py   a data set in parts: by its own files, or a few thousand pictures each
    reading.py      a data set of shards, the broken ones left out
    shard_folder.py the folder of results and its list
"""
