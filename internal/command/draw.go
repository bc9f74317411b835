package command

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"seckill/internal/api"
	"seckill/internal/draw"
	"seckill/model"
)

const leavesPage = 5000 // leaves asked for at once: as many as the API gives

type drawOptions struct{ url, voucher, commitment, value, leaf, cacert string }

func (p Process) drawCommand() *cobra.Command {
	var o drawOptions
	verify := &cobra.Command{
		Use:   "verify --url U --voucher ID",
		Short: "Draw again from what is published, and compare; exit 1 when it does not hold",
		Long: "Reads the proof of a draw and the list of its leaves, and computes everything anew: that the secret is the one that the\n" +
			"commitment was made of, that the list is the one of the root, and that its order is the one that secret, root and beacon give.\n" +
			"It needs no token. docs/draw.md has the arithmetic in words.",
		Example: "  seckill draw verify --url http://127.0.0.1:8080 --voucher ID --commitment HEX --leaf HEX",
	}
	verify.Flags().StringVar(&o.url, "url", "", "the server (required)")
	verify.Flags().StringVar(&o.voucher, "voucher", "", "the voucher (required)")
	verify.Flags().StringVar(&o.commitment, "commitment", "",
		"the commitment that you noted before the end: the published one must still be that")
	verify.Flags().StringVar(&o.value, "value", "",
		"what was drawn in public, as you saw it: the draw must depend on it")
	verify.Flags().StringVar(&o.leaf, "leaf", "", "the leaf of your entry: it must be in the list")
	verify.Flags().StringVar(&o.cacert, "cacert", "",
		"a file with the authority of the server's certificate, PEM (default: the system's)")
	verify.RunE = func(cmd *cobra.Command, _ []string) error {
		client, transport, err := serverAt(o.url)
		switch {
		case err != nil:
			return err
		case !model.ValidID(o.voucher):
			return misused("--voucher is not a voucher's id")
		}
		defer transport.CloseIdleConnections()
		if o.cacert != "" {
			pem, err := os.ReadFile(o.cacert)
			if err != nil {
				return fmt.Errorf("read --cacert: %w", err)
			}
			transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool()}
			if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
				return misused("--cacert has no certificate in PEM")
			}
		}
		return p.verifyDraw(cmd.Context(), client, o)
	}
	return group("draw", "Check a draw", "", verify)
}

func (p Process) verifyDraw(ctx context.Context, client api.Client, o drawOptions) error {
	path := "/vouchers/" + o.voucher + "/draw"
	var proof model.Draw
	if err := client.Call(ctx, http.MethodGet, path, nil, &proof); err != nil {
		return fmt.Errorf("read the proof: %w", err)
	}
	if o.commitment != "" && !strings.EqualFold(o.commitment, proof.Commitment) {
		return errors.New("the draw does not hold: the commitment is not the one that you noted")
	}
	if proof.DrawnAt == nil {
		return draw.ErrNotDrawn
	}
	if o.value != "" && o.value != proof.Value {
		return fmt.Errorf("the draw does not hold: it depends on %q and not on the value that you saw", proof.Value)
	}
	began := time.Now()
	leaves := make([]string, 0, min(proof.Entries, 1<<20))
	for query := (url.Values{"limit": {fmt.Sprint(leavesPage)}}); ; {
		var page model.DrawnLeaves
		if err := client.Call(ctx, http.MethodGet, path+"/entries?"+query.Encode(), nil, &page); err != nil {
			return fmt.Errorf("read the leaves: %w", err)
		}
		leaves = append(leaves, page.Items...)
		if page.NextCursor == "" || len(page.Items) == 0 || int64(len(leaves)) > proof.Entries {
			break
		}
		query.Set("cursor", page.NextCursor)
	}
	proof.VoucherID = o.voucher
	if err := draw.Verify(proof, leaves); err != nil {
		return fmt.Errorf("the draw does not hold: %w", err)
	}
	if proof.Beacon != "" {
		if err := p.say("It depends on %s: %s. Compare it with what was drawn in public.\n", proof.Beacon, proof.Value); err != nil {
			return err
		}
	}
	took := time.Since(began).Round(time.Millisecond)
	err := p.say("The draw holds: %d entries, the first %d got an order. Checked in %s.\n", proof.Entries,
		proof.Winners, took)
	if err != nil || o.leaf == "" {
		return err
	}
	place := slices.Index(leaves, strings.ToLower(o.leaf))
	if place < 0 {
		return errors.New("your leaf is not in the list")
	}
	return p.say("Your leaf has place %d.\n", place+1)
}
