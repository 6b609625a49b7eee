"""`tidelog snapshot`: create portable copies of a store, and restore stores from them.

Creating one reads the store as all tools do, so its writer may be running, and writes only into its folder snapshots/.
"""
