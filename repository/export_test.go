package repository

import "database/sql"

// Writer is the connection that writes to SQLite.
func (d *Database) Writer() *sql.DB { return d.writer }

// KeepListsBusy takes every connection of lists, until it is told to release them.
func (d *Database) KeepListsBusy() (release func()) {
	for range cap(d.browsers) {
		d.browsers <- struct{}{}
	}
	return func() {
		for range cap(d.browsers) {
			<-d.browsers
		}
	}
}

// LookFirst makes every transaction look for existing rows first.
func (o *Orders) LookFirst() { o.readFirst.Store(1 << 40) }
