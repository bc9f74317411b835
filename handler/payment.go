package handler

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gin-gonic/gin"

	"seckill/internal/payment"
	"seckill/internal/telemetry"
	"seckill/model"
)

const tagPayments = "Payments"

const maxWebhookID = 255 // in bytes, as its column

const webhookChallenge = "Standard-Webhooks" // what proves who sends a webhook is no token

// PaymentStart is a payment that was started, and the order that it is for.
type PaymentStart struct {
	PaymentID  string      `json:"payment_id,omitempty" doc:"The same again until this payment has failed; absent of an order that cost nothing."`
	PaymentURL string      `json:"payment_url,omitempty" doc:"The page on which the buyer pays, where there is one."`
	Order      model.Order `json:"order"`
}

// Webhook is what the payment provider tells. It may have members that are not listed here.
type Webhook struct {
	Type string      `json:"type" example:"payment.succeeded" doc:"payment.succeeded, payment.failed, payment.refunded or payment.disputed; anything else changes nothing."`
	Data WebhookData `json:"data"`
}

// WebhookData says which payment a webhook is about.
type WebhookData struct {
	PaymentID string `json:"payment_id"`
	OrderID   string `json:"order_id"`
	Amount    int64  `json:"amount" doc:"Minor units."`
	Currency  string `json:"currency"`
	Refunded  int64  `json:"refunded,omitempty" doc:"How much of the amount went back altogether; with payment.refunded at least 1."`
	Disputed  *bool  `json:"disputed,omitempty" doc:"Whether the buyer disputes the payment; with payment.disputed true unless it says false."`
}

func (a *api) paymentRoutes() {
	registerEither(a, route{
		id: "pay-order", call: "POST /orders/{id}/pay", tag: tagPayments, access: users, status: http.StatusAccepted,
		otherwise: http.StatusOK, summary: "Start to pay my order",
		description: "The order is paid when the provider says so: ask for it again. The same call again repeats the same " +
			"payment, until that has failed. 200: the order cost nothing, and is paid. Another one that is not unpaid cannot be paid: " +
			"ILLEGAL_STATE. Without a payment provider, and while it does not answer: UNAVAILABLE.",
		codes: []model.Code{model.CodeIllegalState},
	}, func(ctx context.Context, userID, id string) (PaymentStart, bool, error) {
		started, order, err := a.options.Payments.Pay(ctx, userID, id)
		order.PaidReference = ""
		return PaymentStart{PaymentID: started.ID, PaymentURL: started.URL, Order: order}, started.ID != "", err
	})
	a.registerPlain(route{
		id: "payment-webhook", call: "POST /webhooks/payments", tag: tagPayments,
		access: public, writer: provider, status: http.StatusNoContent, tolerant: true,
		summary: "Hear from the payment provider",
		description: "Signed as Standard Webhooks demands, with the headers webhook-id, webhook-timestamp and " +
			"webhook-signature (or svix- for webhook-); without a valid signature, or after more than 5 minutes: UNAUTHENTICATED. " +
			"204: applied, durably, or of a type that is not known; a message may be repeated. Money for an order that is closed, " +
			"or paid already, goes back. A paid order whose money went back altogether is refunded; while a payment is disputed, the code " +
			"of its order rests. An unknown order or payment, or a wrong amount, is VALIDATION, and may come again " +
			"corrected; so is another message with the id of one that was applied.",
		codes:   []model.Code{model.CodeUnauthenticated, model.CodeUnavailable},
		request: &huma.MediaType{Schema: a.schema(reflect.TypeFor[Webhook]())},
	}, a.paymentWebhook)
}

// paymentWebhook verifies the signature over the bytes that arrived, before anything looks into them.
func (a *api) paymentWebhook(c *gin.Context) {
	body, _ := io.ReadAll(c.Request.Body) // out of memory, where readBody has put it
	id, err := a.options.Webhooks.Verify(c.Request.Header, body)
	if err != nil {
		a.refuseSender(c, err)
		return
	}
	notice, p := readWebhook(id, body)
	switch {
	case p != nil:
		a.options.Log.ErrorContext(c.Request.Context(), "a signed webhook cannot be read",
			slog.String("detail", p.Detail), slog.Any("errors", p.Errors))
		a.write(c, p)
		return
	case notice == nil: // a test, or news of something else: its sender must not take this for a fault
		a.options.Payments.Unheard(telemetry.UnknownType)
	default:
		if err := a.options.Payments.Notice(c.Request.Context(), *notice); err != nil {
			a.abort(c, err)
			return
		}
	}
	c.Status(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
}

// refuseSender answers a webhook that is unsigned or too old. It is logged once a minute: anybody can send one.
func (a *api) refuseSender(c *gin.Context, err error) {
	ctx := c.Request.Context()
	refusal := &model.Error{
		Code: model.CodeUnauthenticated, Detail: "The webhook's signature is not valid.", Cause: err,
	}
	if errors.Is(err, payment.ErrTimestamp) {
		refusal.Detail = "The webhook's timestamp is more than 5 minutes off."
	}
	a.options.Payments.Unheard(string(refusal.Code))
	a.strangers.Do(func() {
		a.options.Log.InfoContext(ctx, "a webhook is refused", slog.String("request_id", callOf(ctx).id),
			slog.Any("error", err))
	})
	p := a.fail(ctx, refusal)
	p.challenge = webhookChallenge
	a.write(c, p)
}

// readWebhook reads a webhook, or says what is wrong with it. It is nil for one of an unknown type.
func readWebhook(id string, body []byte) (*model.PaymentNotice, *Problem) {
	document, err := parseJSON(body)
	if err != nil {
		return nil, unreadable(err.Error())
	}
	var hook Webhook
	envelope, ok := document.(map[string]any)
	if !ok {
		err = model.Invalid("body", "has a wrong type")
	} else if err = take(&hook.Type, envelope, "body", "type"); err == nil {
		if hook.Type != "" && !hook.known() {
			return nil, nil // there is nothing to hear, and nothing wrong
		}
		hook.Data, err = dataOf(envelope)
	}
	if err == nil {
		err = refuseWebhook(id, hook)
	}
	if err != nil {
		return nil, problemOf(err)
	}
	digest := sha256.Sum256(body)
	notice := &model.PaymentNotice{
		PaymentID: hook.Data.PaymentID, OrderID: hook.Data.OrderID, Succeeded: hook.Type != payment.EventFailed,
		Amount: hook.Data.Amount, Currency: hook.Data.Currency,
		Moved:   hook.Type == payment.EventRefunded || hook.Type == payment.EventDisputed,
		Message: &model.WebhookMessage{ID: id, Digest: digest[:]},
	}
	if notice.Moved {
		notice.Refunded, notice.Disputed = hook.Data.Refunded, hook.Data.Disputed
	}
	if hook.Type == payment.EventDisputed && notice.Disputed == nil {
		notice.Disputed = new(true)
	}
	return notice, nil
}

func (w Webhook) known() bool {
	return slices.Contains([]string{
		payment.EventSucceeded, payment.EventFailed, payment.EventRefunded,
		payment.EventDisputed,
	}, w.Type)
}

// dataOf takes members by their exact names; encoding/json would take Amount for amount, and the later of both.
func dataOf(envelope map[string]any) (WebhookData, error) {
	var (
		said             WebhookData
		data             map[string]any
		disputed         bool
		amount, refunded = json.Number("0"), json.Number("0")
	)
	err := model.JoinInvalid(take(&data, envelope, "body", "data"),
		take(&said.PaymentID, data, "body.data", "payment_id"), take(&said.OrderID, data, "body.data", "order_id"),
		take(&amount, data, "body.data", "amount"), take(&said.Currency, data, "body.data", "currency"),
		take(&refunded, data, "body.data", "refunded"), take(&disputed, data, "body.data", "disputed"))
	if err != nil {
		return said, err
	}
	if said.Amount, err = amount.Int64(); err != nil {
		return said, model.Invalid("body.data.amount", "is too large")
	}
	if said.Refunded, err = refunded.Int64(); err != nil {
		return said, model.Invalid("body.data.refunded", "is too large")
	}
	if _, given := data["disputed"]; given {
		said.Disputed = &disputed
	}
	return said, nil
}

// take reads a member that may be absent. null, or a second one of the name, is a mark of no type that is asked for.
func take[T any](to *T, object map[string]any, location, name string) error {
	value, given := object[name]
	if !given {
		return nil
	}
	typed, ok := value.(T)
	if !ok {
		return model.Invalid(location+"."+name, "has a wrong type")
	}
	*to = typed
	return nil
}

func refuseWebhook(id string, hook Webhook) error {
	var wrong []error
	check := func(fine bool, location, message string) {
		if !fine {
			wrong = append(wrong, model.Invalid(location, "%s", message))
		}
	}
	check(len(id) <= maxWebhookID, "header.webhook-id", "is too long")
	check(hook.known(), "body.type", "is missing")
	check(model.ValidID(hook.Data.PaymentID), "body.data.payment_id", "is not an id")
	check(model.ValidID(hook.Data.OrderID), "body.data.order_id", "is not an id")
	check(hook.Data.Refunded >= 0 && hook.Data.Refunded <= max(hook.Data.Amount, 0), "body.data.refunded",
		"is not a part of the amount")
	check(hook.Type != payment.EventRefunded || hook.Data.Refunded > 0, "body.data.refunded", "is missing")
	return model.JoinInvalid(wrong...)
}

// Redemption is the code that a buyer shows.
type Redemption struct {
	Code string `json:"code" minLength:"1" maxLength:"128" doc:"As it was typed: case, blanks and dashes make no difference."`

	Place string `json:"place,omitempty" maxLength:"64" doc:"For which of your groups, where the voucher names several; absent: the first. The use keeps it."`
}

// tillOf is the caller as a till.
func tillOf(ctx context.Context, place string) model.Till {
	claims := callOf(ctx).claims
	return model.Till{
		By: claims.Subject, Groups: claims.Groups, Place: place, Everywhere: claims.Level.Reaches(model.LevelOperator),
	}
}

// Unredemption says why a use is undone.
type Unredemption struct {
	Reason string `json:"reason" minLength:"1" maxLength:"200" doc:"For the order's history."`
}

func (a *api) redemptionRoutes() {
	answer(a, route{
		id: "redeem-code", call: "POST /admin/redemptions", tag: tagAdmin, access: administrators,
		summary: "Use the code of a paid order, once",
		description: "A code that was used already, or whose order was refunded, is ILLEGAL_STATE with the order's status, and when and by whom it was used; one " +
			"that no order has is NOT_FOUND; one whose check character does not fit was mistyped: VALIDATION. Many wrong ones: RATE_LIMITED. Outside its time: CODE_NOT_YET_VALID, CODE_EXPIRED. A cashier " +
			"with none of the groups that the voucher names as redeemers: NOT_ELIGIBLE.",
		codes: []model.Code{
			model.CodeNotFound, model.CodeNotEligible, model.CodeIllegalState, model.CodeNotYetValid, model.CodeExpired,
		},
	}, func(ctx context.Context, in *sent[Redemption]) (model.Order, error) {
		return a.options.Redeem(ctx, tillOf(ctx, in.Body.Place), in.Body.Code)
	})
	answer(a, route{
		id: "unredeem-order", call: "POST /admin/orders/{id}/unredeem", tag: tagAdmin, access: administrators,
		summary: "Undo the use of an order's code",
		description: "The order is paid again, and its code good. The cashier who used it may do so for 15 minutes, an operator at any time; otherwise: " +
			"FORBIDDEN. An order that is not redeemed: ILLEGAL_STATE. The order's detail shows the use, and why it was undone.",
		codes: []model.Code{model.CodeIllegalState},
	}, func(ctx context.Context, in *sentAbout[Unredemption]) (model.Order, error) {
		return a.options.Unredeem(ctx, model.Undo{
			OrderID: in.ID, By: subject(ctx), Reason: in.Body.Reason,
			Anytime: callOf(ctx).claims.Level.Reaches(model.LevelOperator),
		})
	})
}

// RefundRequest says what an administrator knows of an order.
type RefundRequest struct {
	Used bool `json:"used,omitempty" doc:"Also an order whose code is used."`
}

// Elsewhere says how an order was paid.
type Elsewhere struct {
	Reference string `json:"reference" minLength:"1" maxLength:"128" doc:"Visible characters and blanks, such as the number of a receipt or of a transfer. The same one again changes nothing."`
	Method    string `json:"method,omitempty" maxLength:"32" example:"cash"`
}

type refundsInput struct {
	Paging
	Status string `query:"status" enum:"pending,outside,done,failed" doc:"Only refunds that stand there."`
}

func (a *api) refundRoutes() {
	answer(a, route{
		id: "pay-elsewhere", call: "POST /admin/orders/{id}/paid", tag: tagAdmin, access: administrators,
		summary: "Say that an order was paid elsewhere",
		description: "In cash, by transfer, in the shop's own checkout: no provider is asked. The order is paid, with its code. The same reference again " +
			"answers the same; another one is ALREADY_PAID, with the first. An order that is not unpaid: ILLEGAL_STATE. Money of a provider that comes later goes back.",
		codes: []model.Code{model.CodeIllegalState, model.CodeAlreadyPaid},
	}, func(ctx context.Context, in *sentAbout[Elsewhere]) (model.Order, error) {
		return a.options.Payments.Elsewhere(ctx, subject(ctx), in.ID, model.Elsewhere(in.Body))
	})
	registerBare(a, route{
		id: "refund-paid-back", call: "POST /admin/orders/{id}/refund/done", tag: tagAdmin, access: administrators,
		summary:     "Say that what was paid elsewhere is paid back",
		description: "The refund is done; again: the same. ILLEGAL_STATE: nothing of the order was to be paid back by a person.",
		codes:       []model.Code{model.CodeIllegalState},
	}, a.options.PaidBack)
	answer(a, route{
		id: "refund-order", call: "POST /admin/orders/{id}/refund", tag: tagAdmin, access: administrators,
		status: http.StatusAccepted, summary: "Refund a paid order",
		description: "The unit is on sale again, and the money goes back soon: the list of refunds tells when. A refund that " +
			"had failed for good is tried again. What was paid elsewhere is outside: a person pays it back, and says so. An order that is not paid cannot be refunded: " +
			"ILLEGAL_STATE. A redeemed one can if used says so: its unit does not come back.",
		codes: []model.Code{model.CodeIllegalState, model.CodeConflict},
	}, func(ctx context.Context, in *sentAbout[*RefundRequest]) (model.Refund, error) {
		return a.options.Refund(ctx, subject(ctx), in.ID, model.RefundAsk{Used: in.Body != nil && in.Body.Used})
	})
	registerEither(a, route{
		id: "withdraw-order", call: "POST /orders/{id}/withdraw", tag: tagOrders, access: users,
		status: http.StatusAccepted, otherwise: http.StatusOK, summary: "Give my paid order back",
		description: "Within the voucher's withdrawal from paid_at on, and before its code is used; no reason is asked. The answer, refunded with its " +
			"history, is the receipt; again: 200 with the same. The money goes back by the road on which it came, and the unit is free. Later, or without " +
			"such a time: WITHDRAWAL_OVER.",
		codes: []model.Code{model.CodeIllegalState, model.CodeWithdrawalOver, model.CodeConflict},
	}, a.options.Withdraw)
	answer(a, route{
		id: "list-refunds", call: "GET /admin/refunds", tag: tagAdmin, access: administrators, large: true,
		summary:     "List refunds, newest first",
		description: "A failed one was refused by the payment provider for good: somebody has to look. One that is outside a person has to pay back.",
		codes:       []model.Code{model.CodeValidation},
	}, func(ctx context.Context, in *refundsInput) (model.RefundPage, error) {
		return a.options.Refunds(ctx, model.RefundQuery{
			Status: model.RefundStatus(in.Status), Cursor: in.Cursor, Limit: in.Limit,
		})
	})
}
