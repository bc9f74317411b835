//go:build !unix

package embedded

// OwnFilesOnly does nothing where files have no modes.
func OwnFilesOnly() {}
