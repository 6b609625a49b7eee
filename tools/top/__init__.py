"""`tidelog top`: the streams, groups and queues of a store or a server as they change."""
