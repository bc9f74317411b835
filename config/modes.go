package config

// OrderMode is how orders reach the database.
type OrderMode string

// The order modes.
const (
	Sync  OrderMode = "sync"
	Async OrderMode = "async"
)

// Role is what an instance does.
type Role string

// The roles.
const (
	RoleAll    Role = "all"
	RoleAPI    Role = "api"    // serves, and consumes no orders
	RoleWorker Role = "worker" // consumes, and serves only its health
)

// LockMode is what a user's lock is made of.
type LockMode string

// The lock modes.
const (
	LockRedis     LockMode = "redis"
	LockMultilock LockMode = "multilock"
	LockRedlock   LockMode = "redlock"
	LockSetNX     LockMode = "setnx"
	LockMySQL     LockMode = "mysql"
	LockNone      LockMode = "none"
)

// StockStrategy is how stock is taken in the database.
type StockStrategy string

// The stock strategies.
const (
	StockConditional StockStrategy = "conditional"
	StockPessimistic StockStrategy = "pessimistic"
	StockOptimistic  StockStrategy = "optimistic"
)

// LogFormat is how log records are written.
type LogFormat string

// The log formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)
