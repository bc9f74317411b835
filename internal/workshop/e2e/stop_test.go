package e2e_test

import (
	"context"
	"net/http"
	"testing"

	"seckill/internal/workshop/check"
	"seckill/model"
)

// TestAStopServesOn: from the signal on the instance is not ready, and serves whoever has not noticed, on connections that
// stand and on new ones. Each answer closes its connection.
func TestAStopServesOn(t *testing.T) {
	t.Parallel()
	instance, err := begin(t, embeddedSettings(t).with(settings{"SECKILL_DRAIN_GRACE": "1h"}))
	check.Must(t, err)
	a := newApp(t, instance.BaseURL(), instance.OpsURL())
	voucher := a.onSale(t, 10)
	ctx, enough := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		instance.Stop(ctx)
	}()
	a.unready(t)
	for n := range 5 {
		if n == 3 {
			a.Client.CloseIdleConnections()
		}
		request := check.Value(http.NewRequestWithContext(t.Context(), http.MethodPost, a.URL+"/api/v1/vouchers/"+voucher.ID+"/seckill", nil))(t)
		request.Header.Set("Authorization", "Bearer "+a.Token(t, a.user(n), model.RoleUser))
		answer, err := a.Client.Do(request)
		check.Must(t, err)
		_ = answer.Body.Close()
		check.Equal(t, "a purchase", answer.StatusCode, http.StatusCreated)
		check.Equal(t, "it closes its connection", answer.Close, true)
	}
	enough()
	check.Receive(t, "the stop", stopped)
}
