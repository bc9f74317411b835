package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"seckill/config"
	"seckill/internal/app"
	"seckill/internal/token"
	"seckill/model"
)

const (
	// demoToken is how long the demo's tokens are good: longer than it runs.
	demoToken = time.Hour
	// demoConnections is how many connections the buyers share: what a proxy
	// in front of the service would keep open, and few enough for the limits
	// on open files that machines come with.
	demoConnections = 200
	// maxDemoBuyers bounds the memory of a demo: each buyer is a goroutine
	// with a token and an answer, some 20 kB.
	maxDemoBuyers = 100_000
	// shortestWindow is how long orders stay unpaid, and windowOfBuyer more for each buyer: the sale has to be
	// counted, and its payers to pay, before the first order expires.
	shortestWindow = 5 * time.Second
	windowOfBuyer  = 500 * time.Microsecond
)

// sale is the demo's flash sale.
type sale struct {
	buyers  int
	stock   int64
	base    string
	voucher string
	tokens  *token.Authority
	http    *http.Client

	// window is how long an order may stay unpaid.
	window time.Duration
	// openLedger opens the payment provider's ledger, by the base URL of its API.
	openLedger func(base string) (ledger, error)
}

func (p Process) demoCommand() *cobra.Command {
	var s sale
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run one flash sale, start to finish, against an embedded server",
		Long: "Starts an embedded server on free ports, with its data in a temporary directory, puts one voucher up\n" +
			"and lets all buyers press the button at the same instant, over real HTTP. Then three independent counts\n" +
			"are compared: the buyers' answers, the orders the server exports, and its audit. Afterwards about half of\n" +
			"the orders are paid at a simulated provider, one is redeemed, one refunded, the others lapse, and what came\n" +
			"back is sold again; then the orders are compared with the provider's ledger. Exit 1 when anything is off\n" +
			"by one unit or one cent. Of the environment only SECKILL_ORDER_MODE counts: in async, whoever heard 202 then waits until\n" +
			"his order is unpaid.",
		Args: noArgs,
	}
	cmd.Flags().IntVar(&s.buyers, "buyers", 2000, "how many buyers")
	cmd.Flags().Int64Var(&s.stock, "stock", 100, "how many vouchers")
	cmd.Flags().DurationVar(&s.window, "payment-window", 0, "how long an order may stay unpaid (default 5s, and 1s more for 2,000 buyers)")
	flags := settingFlags(cmd, "SECKILL_STOCK_STRATEGY", "SECKILL_ORDER_MODE")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.buyers < 1 || s.buyers > maxDemoBuyers {
			return misused("--buyers must be from 1 to %d", maxDemoBuyers)
		}
		if s.stock < 0 || s.stock > model.MaxAmount {
			return misused("--stock must be from 0 to %d", int64(model.MaxAmount))
		}
		if s.window == 0 {
			s.window = shortestWindow + time.Duration(s.buyers)*windowOfBuyer
			if s.tooLarge() {
				s.window = demoToken / 2 // nothing lapses
			}
		}
		if s.window < time.Second || s.window > demoToken/2 {
			return misused("--payment-window must be from 1s to %s", demoToken/2)
		}
		return p.demo(cmd.Context(), s, flags())
	}
	return cmd
}

// demo starts the server, runs the sale and reports.
func (p Process) demo(ctx context.Context, s sale, flags map[string]string) (err error) {
	dir, err := os.MkdirTemp("", "seckill-demo-")
	if err != nil {
		return fmt.Errorf("make a temporary directory: %w", err)
	}
	defer func() {
		if removed := os.RemoveAll(dir); removed != nil {
			err = errors.Join(err, fmt.Errorf("remove the temporary directory: %w", removed))
		}
	}()
	flags["SECKILL_DATA_DIR"] = dir
	flags["SECKILL_HTTP_ADDR"] = "127.0.0.1:0"
	flags["SECKILL_OPS_ADDR"] = "127.0.0.1:0"
	flags["SECKILL_RATE_USER"] = "0"
	flags["SECKILL_RATE_ADDR"] = "0"
	flags["SECKILL_LOG_LEVEL"] = "warn"
	environ := slices.DeleteFunc(slices.Clone(p.Environ), func(entry string) bool {
		return !strings.HasPrefix(entry, "SECKILL_ORDER_MODE=")
	})
	secret := rand.Text()
	environ = append(environ, "SECKILL_WEBHOOK_SECRETS="+secret)
	cfg, err := config.Load(environ, config.Flags(flags))
	if err != nil {
		return err
	}
	if s.tokens, err = app.Tokens(ctx, cfg); err != nil {
		return err
	}
	instance, err := app.Start(ctx, cfg, p.newLogger(cfg))
	if err != nil {
		return err
	}
	defer func() {
		// No load balancer must be given time to notice: stop at once.
		done, cancel := context.WithCancel(ctx)
		cancel()
		instance.Stop(done)
	}()
	transport := newTransport(demoConnections)
	defer transport.CloseIdleConnections()
	s.base, s.http = instance.BaseURL(), &http.Client{Transport: transport}
	s.openLedger = func(base string) (ledger, error) { return providerLedger(base, secret) }
	return p.runDemo(ctx, s)
}

// runDemo runs the sale, and what comes after it.
func (p Process) runDemo(ctx context.Context, s sale) error {
	admin, err := s.client("admin", model.RoleAdmin)
	if err != nil {
		return err
	}
	if s.voucher, err = createVoucher(ctx, admin, s.stock, s.window); err != nil {
		return fmt.Errorf("put the voucher up: %w", err)
	}
	answers, err := p.runSale(ctx, s, admin)
	if err != nil {
		return err
	}
	return p.afterSale(ctx, s, answers)
}

// runSale sells the voucher and counts what was sold.
func (p Process) runSale(ctx context.Context, s sale, admin apiClient) ([]answer, error) {
	fmt.Fprintf(p.Stdout, "%d buyers, %d vouchers, one server at %s\n", s.buyers, s.stock, s.base)
	answers, took, err := p.openTheSale(ctx, s)
	if err != nil {
		return nil, err
	}
	printAnswers(p.Stdout, answers, took)
	if err := p.awaitOrders(ctx, s, answers); err != nil {
		return nil, err
	}
	count, err := countSale(ctx, admin, s, answers)
	if err != nil {
		return nil, fmt.Errorf("count what was sold: %w", err)
	}
	count.print(p.Stdout)
	if wrong := count.wrong(s); len(wrong) > 0 {
		return nil, errors.New("the sale does not add up:\n  " + strings.Join(wrong, "\n  "))
	}
	fmt.Fprintf(p.Stdout, "\nIt adds up: %d of %d sold, each to another buyer, and all three counts agree.\n",
		count.answers, s.stock)
	return answers, nil
}

// client calls the server in the name of a subject.
func (s sale) client(subject string, role model.Role) (apiClient, error) {
	signed, err := s.tokens.Issue(token.Claims{Subject: subject, Role: role}, demoToken)
	return apiClient{base: s.base, token: signed, http: s.http}, err
}

// createVoucher puts up the voucher of the sale, as an administrator would.
func createVoucher(ctx context.Context, admin apiClient, stock int64, window time.Duration) (id string, err error) {
	now := time.Now().UTC()
	var voucher model.Voucher
	err = admin.request(ctx, http.MethodPost, "/admin/vouchers", map[string]any{
		"title": "Coffee for two", "price": 1000, "face_value": 2500, "stock": stock,
		"begin_at": now.Add(-time.Minute), "end_at": now.Add(demoToken),
		"payment_window": window.String(),
	}, decode(&voucher))
	return voucher.ID, err
}

// userID is the user id of a buyer, from 0.
func userID(buyer int) string { return strconv.Itoa(buyer + 1) }
