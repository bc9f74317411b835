package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "seckill"

// Where a package stands: the first element of its path, but for what is below internal/.
const (
	root     = "."                 // package main
	command  = "internal/command"  // the command line
	app      = "internal/app"      // the wiring: the only package that knows all the parts
	client   = "internal/api"      // the API as its clients see it
	demo     = "internal/demo"     // a sale from start to finish, as clients see it
	userlock = "internal/userlock" // the users' locks, of package lock
	lab      = "lock/lab"          // the laboratory: tries real locks and strategies on each other
	helpers  = "internal"          // the rest of internal/: no business of its own

	console = "handler/console" // pages for people: beside the API, never on it
	wire    = "handler/wire"    // what both say on HTTP with one voice

	sqldb   = "repository/sqldb"   // opens the database and runs its transactions, for repository
	hotcopy = "repository/hotcopy" // the sales in Redis: stands beside the database, never on it
	sale    = "service/sale"       // the road of one order, and what an instance remembers of vouchers
	guard   = "service/guard"      // whether this instance may sell
	backlog = "service/backlog"    // the one watcher of the queue of orders
	persist = "service/persist"    // from the queue to the row
	repair  = "service/repair"     // what puts right, changes or ends what lies behind the orders: never on service, which stands in front
)

// importMap says which of our own packages a layer may import (its own subpackages always). A layer that is
// not listed is unknown and thus an error: a new directory at the top is a decision to be made here.
var importMap = map[string][]string{
	root:         {command},
	command:      {app, "config", "model", client, demo, helpers}, // what it needs of the other parts, app offers
	client:       {"model", helpers},
	demo:         {client, "model", helpers},
	app:          {userlock, "config", "handler", console, "service", sale, guard, backlog, persist, repair, "repository", sqldb, hotcopy, "queue", "model", helpers},
	userlock:     {"lock", "model", helpers},
	lab:          {"repository", sqldb, "lock", "model", helpers}, // a program of its own
	"handler":    {wire, "service", "model", helpers},
	console:      {wire, "service", "model", helpers},
	wire:         {"model"},
	"service":    {sale, "model", helpers}, // the rest is behind its ports
	sale:         {"model", helpers},
	guard:        {"model", helpers},
	backlog:      {"model", helpers},
	persist:      {"model", helpers},
	repair:       {persist, "model", helpers},
	"repository": {sqldb, "model", helpers},
	sqldb:        {"model", helpers},
	hotcopy:      {"model", helpers},
	"queue":      {"model", helpers},
	helpers:      {"model"},
	"lock":       {}, // a library: usable without us
	"model":      {},
	// Programs beside the service, in modules of their own: those of the build, and payment providers' adapters, which speak
	// the protocol of internal/payment.
	"deployments": {"model", helpers},
	"config":      {"model", helpers}, // internal/payment, redact and redisurl; .golangci.yml names them alone
}

// libraries are the foreign modules of the layers that promise to need few; "" alone is the standard
// library only. The other layers' libraries are in .golangci.yml.
var libraries = map[string][]string{
	"model":  {},
	"config": {},
	"lock":   {"github.com/redis/go-redis/v9"},
}

// testOnly are packages that no program may contain, each with what is below it.
var testOnly = []string{
	module + "/internal/workshop",
	module + "/repository/hotcopy/hotcopytest",
	module + "/service/servicetest",
	"testing",
	"go.uber.org/goleak",
}

func layer(dir string) string {
	first, rest, _ := strings.Cut(dir, "/")
	second, _, _ := strings.Cut(rest, "/")
	part := first + "/" + second
	if _, own := importMap[part]; own {
		return part
	}
	return first
}

// harness says whether a package is there for tests alone, and so is held to no layer.
func harness(dir string) bool {
	return forTests(module+"/"+dir) || strings.HasSuffix(path.Base(dir), "test")
}

func forTests(imported string) bool {
	return slices.ContainsFunc(testOnly, func(known string) bool {
		return imported == known || known != "testing" && strings.HasPrefix(imported, known+"/")
	})
}

// importViolations holds every file that ends up in a program to the map. Test files may import what they
// like: they stand outside and look in.
func importViolations(files []file) []string {
	var found []string
	for _, f := range goFiles(files) {
		if f.test() || harness(f.dir()) {
			continue
		}
		for _, imported := range f.imports() {
			if why := forbidden(f.dir(), imported); why != "" {
				found = append(found, fmt.Sprintf("%s imports %s: %s", f.path, imported, why))
			}
		}
	}
	return found
}

// forbidden is the reason why a package in dir may not import another, or empty.
func forbidden(dir, imported string) string {
	from := layer(dir)
	allowed, known := importMap[from]
	if !known {
		return "the layer " + from + " is not in the import map"
	}
	if forTests(imported) {
		return "it is for tests only"
	}
	if imported != module && !strings.HasPrefix(imported, module+"/") {
		return foreign(from, imported)
	}
	to := layer(strings.TrimPrefix(imported, module+"/"))
	if to == from || slices.Contains(allowed, to) {
		return ""
	}
	return fmt.Sprintf("%s may import %v of ours", from, allowed)
}

func foreign(from, imported string) string {
	allowed, limited := libraries[from]
	first, _, _ := strings.Cut(imported, "/")
	if !limited || !strings.Contains(first, ".") { // no dot: the standard library
		return ""
	}
	for _, library := range allowed {
		if imported == library || strings.HasPrefix(imported, library+"/") {
			return ""
		}
	}
	return fmt.Sprintf("%s may import the standard library and %v", from, allowed)
}

func TestImports(t *testing.T) {
	t.Parallel()
	report(t, importViolations(repository(t)))
}

// TestImportRules is the negative control: the rules find what they are there for.
func TestImportRules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		file, imported string
		legal          bool
	}{
		{"main.go", "seckill/internal/command", true},
		{"main.go", "seckill/internal/app", false},
		{"main.go", "seckill/handler", false},
		{"internal/command/serve.go", "seckill/internal/app", true},
		{"internal/command/serve.go", "seckill/repository", false},
		{"internal/command/serve.go", "seckill/internal/workshop/testserver", false},
		{"internal/app/servers.go", "seckill/repository", true},
		{"internal/app/servers.go", "seckill/internal/command", false},
		{"internal/app/servers.go", "seckill/internal/workshop/testserver", false},
		{"handler/order.go", "seckill/service", true},
		{"handler/order.go", "seckill/model", true},
		{"handler/order.go", "seckill/internal/token", true},
		{"handler/order.go", "github.com/gin-gonic/gin", true},
		{"handler/order.go", "seckill/repository", false},
		{"handler/order.go", "seckill/lock", false},
		{"handler/order.go", "seckill/config", false},
		{"handler/order.go", "seckill/internal/command", false},
		{"handler/order.go", "seckill/internal/app", false},
		{"handler/order.go", "seckill/handler/console", false},
		{"handler/console/page.go", "seckill/service", true},
		{"handler/console/page.go", "seckill/handler", false},
		{"handler/console/page.go", "seckill/repository", false},
		{"handler/console/page.go", "seckill/handler/wire", true},
		{"handler/order.go", "seckill/handler/wire", true},
		{"handler/wire/code.go", "seckill/handler", false},
		{"handler/wire/code.go", "seckill/service", false},
		{"handler/order_test.go", "seckill/repository", true},
		{"service/voucher.go", "seckill/service/sale", true},
		{"service/voucher.go", "seckill/service/repair", false},
		{"service/sale/order.go", "seckill/service/sale/cache", true},
		{"service/sale/order.go", "seckill/service", false},
		{"service/sale/order.go", "seckill/repository", false},
		{"service/sale/order.go", "seckill/service/repair", false},
		{"service/persist/persist.go", "seckill/model", true},
		{"service/persist/persist.go", "seckill/service", false},
		{"service/persist/persist.go", "seckill/service/repair", false},
		{"service/repair/audit.go", "seckill/service/persist", true},
		{"service/persist/persist.go", "seckill/service/sale", false},
		{"service/persist/persist.go", "seckill/repository", false},
		{"service/sale/cache/cache.go", "seckill/service", false},
		{"service/sale/cache/cache.go", "seckill/service/repair", false},
		{"service/sale/order.go", "seckill/handler", false},
		{"repository/order.go", "seckill/model", true},
		{"repository/order.go", "seckill/service", false},
		{"repository/order.go", "seckill/lock", false},
		{"repository/order.go", "seckill/repository/hotcopy", false},
		{"repository/hotcopy/read.go", "seckill/repository", false},
		{"repository/hotcopy/read.go", "seckill/internal/ids", true},
		{"service/repair/rebuild.go", "seckill/repository/hotcopy/hotcopytest", false},
		{"repository/repotest/suite.go", "testing", true},
		{"repository/order.go", "testing", false},
		{"queue/publish.go", "seckill/repository", false},
		{"lock/lock.go", "github.com/redis/go-redis/v9", true},
		{"lock/lock.go", "github.com/google/uuid", false},
		{"lock/lock.go", "seckill/model", false},
		{"lock/lock.go", "seckill/internal/ids", false},
		{"model/order.go", "time", true},
		{"model/order.go", "gorm.io/gorm", false},
		{"model/order.go", "seckill/internal/ids", false},
		{"config/config.go", "net/netip", true},
		{"config/config.go", "github.com/spf13/viper", false},
		{"config/config.go", "seckill/model", true},
		{"internal/token/token.go", "seckill/model", true},
		{"internal/token/token.go", "seckill/service", false},
		{"internal/token/token.go", "seckill/lock/lab", false},
		{"lock/lab/lab.go", "seckill/lock", true},
		{"lock/lab/lab.go", "seckill/handler", false},
		{"handler/order.go", "seckill/lock/lab", false},
		{"utils/strings.go", "strings", false},
	}
	for _, test := range tests {
		t.Run(test.file+" "+test.imported, func(t *testing.T) {
			t.Parallel()
			found := importViolations([]file{parse(t, test.file, "package p\n\nimport _ \""+test.imported+"\"\n")})
			if test.legal {
				report(t, found)
				return
			}
			wantOne(t, found, test.file+" imports "+test.imported)
		})
	}
}
