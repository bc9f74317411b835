package lab

import (
	"fmt"

	"seckill/repository"
)

// The groups of the table.
const (
	groupBroken = "broken"
	groupLock   = "locks"
	groupStock  = "stock"
)

// catalog is every strategy, in the order of the table.
func catalog() []strategy {
	return []strategy{
		noLock(), localMutex(), checkThenSet(), setNXForever(), setNXThenExpire(),
		noOwnerCheck(), getThenDelete(), noWatchdog(), noReentry(), forUpdateLate(),

		redisHash(), setNXStore(), mysqlTable(), multiLock(), redLock(),

		stock(repository.StockConditional, onSQL, "the UPDATE states what it relies on"),
		stock(repository.StockPessimistic, onMySQL, "SELECT … FOR UPDATE before the read"),
		stock(repository.StockOptimistic, onSQL, "compares a version, begins anew"),
		databaseConstraint(),
	}
}

func strategyNamed(name string) (strategy, error) {
	for _, s := range catalog() {
		if s.name == name {
			return s, nil
		}
	}
	return strategy{}, fmt.Errorf("the lab has no strategy %q", name)
}
