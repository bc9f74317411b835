package repository

import "seckill/internal/budget"

// LookFirst makes every transaction look for existing rows first.
func (o *Orders) LookFirst() { o.readFirst.Store(1 << 40) }

// SlowTaking is after which it is found out whose row a statement waited for.
const SlowTaking = budget.Glance
