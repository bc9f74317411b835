package testserver

import (
	"errors"
	"os"
	"path/filepath"
)

// KeepData copies the data of the server as they are now, running or not: what a backup of the disk would
// hold. RestoreData brings them back.
func (s *Server) KeepData() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(os.RemoveAll(s.kept()), os.CopyFS(s.kept(), os.DirFS(s.data()))); err != nil {
		s.t.Errorf("testserver: keep the data of %s: %v", s.engine.program, err)
	}
}

// RestoreData makes a killed or stopped server come back with the data that were kept.
func (s *Server) RestoreData() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.child.ended() {
		s.t.Errorf("testserver: RestoreData while %s is running: call Kill or Stop first", s.engine.program)
		return
	}
	if err := errors.Join(os.RemoveAll(s.data()), os.CopyFS(s.data(), os.DirFS(s.kept()))); err != nil {
		s.t.Errorf("testserver: restore the data of %s: %v", s.engine.program, err)
	}
}

func (s *Server) kept() string { return filepath.Join(s.dir, "kept") }
