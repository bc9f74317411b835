// Command buyer-go VOUCHER buys one unit at $SECKILL as the user of $TOKEN: prints where to pay, later the code, or why not.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"
)

type answer struct {
	ID, Code, Reason string // code: of a problem, or what a paid order shows
	Status           any    // of an order; of a problem its number
	OrderID          string `json:"order_id"`
	PaymentURL       string `json:"payment_url"`
	Items            []answer
}

// call repeats until it is decided: the repeated call finds the order, or the payment, of the one before.
func call(method, path string) answer {
	client := http.Client{Timeout: 15 * time.Second} // the longest answer is that of ?wait=10s
	for n := range 10 {                              // over half a minute or longer
		pause := min(100*time.Millisecond<<n, 10*time.Second)
		request, _ := http.NewRequest(method, os.Getenv("SECKILL")+"/api/v1"+path, nil)
		request.Header.Set("Authorization", "Bearer "+os.Getenv("TOKEN"))
		if response, err := client.Do(request); err == nil { // otherwise it is lost, and the order may be there
			var got answer
			err = json.NewDecoder(response.Body).Decode(&got)
			_ = response.Body.Close()
			if status := response.StatusCode; err == nil && status != http.StatusTooManyRequests && status < 500 {
				return got
			}
			asked, _ := time.ParseDuration(response.Header.Get("Retry-After") + "s")
			pause = cmp.Or(asked, pause)
		}
		time.Sleep(pause + rand.N(pause/2+1)) // real time: not sooner than asked for, nor with all others
	}
	return answer{Reason: "no answer; start again later, and it is still one unit"}
}

func main() {
	order := call("POST", "/vouchers/"+os.Args[1]+"/seckill")
	id := cmp.Or(order.ID, order.OrderID)                // of ALREADY_ORDERED, good news: an earlier attempt got it
	if order.Code == "ENDED" || order.Code == "PAUSED" { // since then; what was got before is kept, the newest first
		id = append(call("GET", "/orders?voucher_id="+os.Args[1]).Items, answer{})[0].ID
	}
	for open := id != ""; open; open = order.Status == "processing" {
		order = call("GET", "/orders/"+id+"?wait=10s")
	}
	if order.Status == "unpaid" {
		order = call("POST", "/orders/"+id+"/pay")
	}
	fmt.Println(cmp.Or(order.PaymentURL, order.Reason, order.Code, fmt.Sprint(order.Status)))
	if order.PaymentURL == "" && order.Status != "paid" {
		os.Exit(1)
	}
}
