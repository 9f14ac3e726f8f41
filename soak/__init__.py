"""A soak of real processes: brokers on disk, applications, a Spark cluster, and faults.

Applications (sync and aio, over AMQP, TLS and WebSocket) send all the time, the syphon drains on a
standalone cluster of two workers, and faults strike one after the other: `kill -9` of any process,
the network through a proxy, disk and clock of the brokers. Every call of an application is written
to a file before it is made and after it has ended. At the end all faults are removed, and the
judge of the simulation compares these histories with the messages in the primary's queues.
"""
