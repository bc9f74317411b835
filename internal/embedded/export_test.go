package embedded

// Listens tells whether the server can be reached from outside of this process.
func (n *NATS) Listens() bool {
	s := n.server.Load()
	return s.Addr() != nil || s.ClusterAddr() != nil || s.MonitorAddr() != nil || s.ProfilerAddr() != nil
}

// FlushesAlways tells whether the server flushes each message. Outside, only the machine's death would show it.
func (n *NATS) FlushesAlways() bool { return n.server.Load().JetStreamConfig().SyncAlways }
