package testserver

// Impatient does not wait for goroutines that are left over.
func Impatient() { process.patience = 0 }
