package repository

// LookFirst makes every transaction look for existing rows first.
func (o *Orders) LookFirst() { o.readFirst.Store(1 << 40) }
