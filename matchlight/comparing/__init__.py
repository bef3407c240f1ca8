"""Methods against each other: how they stand up to noise, and how fast they are.

In reading order:

    variants.py         a method with arguments of its own; the cells of a comparison
    noise_columns.py    the columns: shares of noise, by caption or by whole pictures
    cell_run.py         train and measure one cell
    grid.py             every cell of a comparison that is not finished
    several_devices.py  the same with several processes, on one device or several
    merging.py          finished cells of another folder taken over
    results_table.py    the results: their types, and one table of means over seeds
    curves.py           curves as an SVG picture
    results_page.py     report.html
    results_files.py    every file a comparison writes
    caption_loop.py     scores the slow way, caption by caption
    speed.py            how much faster ours are: `matchlight bench score|train`
    growth.py           how a cost grows with the data
"""
