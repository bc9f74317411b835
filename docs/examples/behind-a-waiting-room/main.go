// Command behind-a-waiting-room signs tokens of seckill for visitors whom a waiting room has let through.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// ticket is what the room writes for a visitor that it lets through. Take your room's own proof in its place.
func ticket(visitor, until string) string {
	sum := hmac.New(sha256.New, []byte(os.Getenv("ROOM_SECRET")))
	sum.Write([]byte(visitor + " " + until))
	return hex.EncodeToString(sum.Sum(nil))
}

func admit(w http.ResponseWriter, r *http.Request) {
	visitor, until := r.FormValue("visitor"), r.FormValue("until")
	end, err := time.Parse(time.RFC3339, until)
	if err != nil || time.Now().After(end) || !hmac.Equal([]byte(ticket(visitor, until)), []byte(r.FormValue("ticket"))) {
		http.Error(w, "go through the waiting room", http.StatusForbidden)
		return
	}
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "seckill", "aud": "seckill", "sub": visitor, "exp": end.Unix(), "role": "user", "groups": "admitted",
	})
	token.Header["kid"] = "1"
	signed, err := token.SignedString([]byte(os.Getenv("SECKILL_JWT_SECRET")))
	if err != nil {
		http.Error(w, "no token could be signed", http.StatusInternalServerError)
		return
	}
	_, _ = w.Write([]byte(signed))
}

func main() {
	listener, err := net.Listen("tcp", os.Getenv("ADDR"))
	if err != nil {
		log.Fatal(err)
	}
	log.Print("signs at http://", listener.Addr())
	server := http.Server{Handler: http.HandlerFunc(admit), ReadHeaderTimeout: time.Minute}
	log.Fatal(server.Serve(listener))
}
