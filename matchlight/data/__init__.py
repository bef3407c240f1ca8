"""What a data set is read from, broken by and known again by."""
