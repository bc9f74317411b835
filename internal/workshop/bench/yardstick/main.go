// Command yardstick is the measure of speed: the least that an endpoint with a token costs. It checks one alike (HS256,
// issuer, audience, expiry) by the same router and library, answers a constant, and imports nothing of the service.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/golang-jwt/jwt/v5"
)

const answer = `{"id":"0197f2a6-5d5c-7cc1-b5a4-6f1d6f0a2b11.0197f2a6","voucher_id":"0197f2a6","user_id":"b0000001",` +
	`"status":"processing","price":1000,"currency":"CNY","created_at":"2026-01-01T00:00:00.000000Z"}`

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address")
	secret := flag.String("secret", "", "of the tokens, at least 32 bytes")
	flag.Parse()
	if err := serve(*listen, []byte(*secret)); err != nil && !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, "yardstick:", err)
		os.Exit(1)
	}
}

func serve(listen string, secret []byte) error {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(authenticated(secret))
	router.POST("/api/v1/vouchers/:id/seckill", func(c *gin.Context) {
		c.Data(http.StatusAccepted, "application/json; charset=utf-8", []byte(answer))
	})
	// As long as a client may take to send a header: it has to be bounded, and is never reached here.
	server := &http.Server{Addr: listen, Handler: router, ReadHeaderTimeout: 5 * time.Second}
	return server.ListenAndServe()
}

func authenticated(secret []byte) gin.HandlerFunc {
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"HS256"}), jwt.WithIssuer("seckill"),
		jwt.WithAudience("seckill"), jwt.WithExpirationRequired())
	key := func(*jwt.Token) (any, error) { return secret, nil } //nolint:unparam // the type is the library's
	return func(c *gin.Context) {
		bearer, found := strings.CutPrefix(c.GetHeader("Authorization"), "Bearer ")
		if !found {
			c.AbortWithStatus(http.StatusUnauthorized)
			return
		}
		var claims jwt.RegisteredClaims
		if _, err := parser.ParseWithClaims(bearer, &claims, key); err != nil {
			c.AbortWithStatus(http.StatusUnauthorized)
		}
	}
}
