package embedded

// FlushesAlways tells whether the server flushes each message. From outside only
// the death of the machine would show it.
func (n *NATS) FlushesAlways() bool { return n.server.Load().JetStreamConfig().SyncAlways }
