// Command coupon-beside-a-shop is a shop's checkout that lets seckill decide who gets one of the coupons.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/golang-jwt/jwt/v5"
)

// call is repeated until it is decided: a repeated call finds the order, or the payment, of the one before.
func call(user, role, method, path, body string) (status int, answer map[string]any) {
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "seckill", "aud": "seckill", "sub": user, "role": role, "exp": time.Now().Add(time.Hour).Unix(),
	})
	token.Header["kid"] = "1"
	signed, _ := token.SignedString([]byte(os.Getenv("SECKILL_JWT_SECRET")))
	status, _ = backoff.Retry(context.Background(), func() (int, error) {
		request, _ := http.NewRequest(method, os.Getenv("SHOP_SECKILL")+"/api/v1"+path, strings.NewReader(body))
		request.Header = http.Header{"Authorization": {"Bearer " + signed}, "Content-Type": {"application/json"}}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		if response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests {
			return 0, errors.New(response.Status)
		}
		return response.StatusCode, json.NewDecoder(response.Body).Decode(&answer)
	}, backoff.WithMaxElapsedTime(time.Minute))
	return status, answer
}

func main() {
	voucher, customer, invoice := os.Args[1], os.Args[2], os.Args[3]
	status, order := call(customer, "user", "POST", "/vouchers/"+voucher+"/seckill", "")
	id, ordered := order["id"], order["code"] == "ALREADY_ORDERED" // a second click: the coupon is this customer's
	if ordered {
		id = order["order_id"]
	} else if status >= http.StatusBadRequest {
		fmt.Println("no coupon:", order["code"])
		return
	}
	call(customer, "user", "GET", fmt.Sprintf("/orders/%s?wait=10s", id), "") // until it is in the database
	// Here the shop takes the money, by its own means. Then it says so, under the number of its invoice.
	_, order = call("checkout", "admin", "POST", fmt.Sprintf("/admin/orders/%s/paid", id), `{"reference":"`+invoice+`"}`)
	fmt.Println("coupon:", order["code"])
}
