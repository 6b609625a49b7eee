"""Jobs: analyses of a store, each a function from DataFrames to a DataFrame.

They take the tables of the data source `tidelog`, and some the table `events`. They read nothing themselves: the caller
chooses snapshot, streams and filters, and Spark runs an analysis when its result is used. All but `lag` expect the rows
of one snapshot. The module's docstring lists the columns.
"""
