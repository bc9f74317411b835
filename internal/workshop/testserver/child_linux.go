package testserver

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		Setpgid:   true, // Ctrl-C reaches the test first, which then stops its servers in order
	}
}

// Disk is a file system of its own, which can be filled.
type Disk struct {
	t   testing.TB
	dir string
}

// SmallDisk mounts a file system of so many bytes, which is gone at the end of the test. It needs the right to mount.
func SmallDisk(t testing.TB, size string) *Disk {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatalf("testserver: mount a small disk (which needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("testserver: unmount %s: %v", dir, err)
		}
	})
	return &Disk{t: t, dir: dir}
}

// Dir is where it is.
func (d *Disk) Dir() string { return d.dir }

// Fill takes all the room there is, also what is freed meanwhile.
func (d *Disk) Fill() {
	d.t.Helper()
	file, err := os.OpenFile(d.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	for size := 1 << 20; err == nil && size > 0; {
		if _, failed := file.Write(make([]byte, size)); errors.Is(failed, syscall.ENOSPC) {
			size /= 2
		} else {
			err = failed
		}
	}
	if err = errors.Join(err, file.Close()); err != nil {
		d.t.Fatalf("testserver: fill a disk: %v", err)
	}
}

// Free gives the room back that Fill took.
func (d *Disk) Free() {
	d.t.Helper()
	if err := os.Remove(d.ballast()); err != nil {
		d.t.Fatalf("testserver: free a disk: %v", err)
	}
}

func (d *Disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// OnSmallDisk moves the data of a server onto a disk that can be filled.
func (s *Server) OnSmallDisk(t testing.TB, size string) *Disk {
	t.Helper()
	s.Stop()
	disk := SmallDisk(t, size)
	err := os.CopyFS(disk.dir, os.DirFS(s.data()))
	if err = errors.Join(err, os.RemoveAll(s.data()), os.Symlink(disk.dir, s.data())); err != nil {
		t.Fatalf("testserver: move the data of %s: %v", s.engine.program, err)
	}
	s.Start()
	return disk
}
