package testserver

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"seckill/internal/workshop/check"
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
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size)
	check.Need(t, err == nil, "testserver: mount a small disk (which needs root): %v", err)
	t.Cleanup(func() {
		err := syscall.Unmount(dir, syscall.MNT_DETACH)
		check.That(t, err == nil, "testserver: unmount %s: %v", dir, err)
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
	check.Must(d.t, errors.Join(err, file.Close()))
}

// Free gives the room back that Fill took.
func (d *Disk) Free() {
	d.t.Helper()
	check.Must(d.t, os.Remove(d.ballast()))
}

func (d *Disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// OnSmallDisk moves the data of a server onto a disk that can be filled.
func (s *Server) OnSmallDisk(t testing.TB, size string) *Disk {
	t.Helper()
	s.Stop()
	disk := SmallDisk(t, size)
	check.Must(t, os.CopyFS(disk.dir, os.DirFS(s.data())))
	check.Must(t, errors.Join(os.RemoveAll(s.data()), os.Symlink(disk.dir, s.data())))
	s.Start()
	return disk
}
