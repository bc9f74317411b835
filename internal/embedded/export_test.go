package embedded

// FlushesAlways tells whether the server flushes each message, which nobody
// sees from outside unless the machine dies.
func (n *NATS) FlushesAlways() bool { return n.server.JetStreamConfig().SyncAlways }
