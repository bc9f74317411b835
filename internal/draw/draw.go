// Package draw is the arithmetic of a draw that anybody can check, by the same functions; docs/draw.md has it in words.
package draw

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"seckill/model"
)

// Algorithm names all that stands in this package but Seed, and WithBeacon all of it. Another way has another name.
const (
	Algorithm  = "seckill-draw-1"
	WithBeacon = "seckill-draw-2"
)

// Sizes in bytes.
const (
	SecretSize = 32 // of a secret: too long to be found by trying
	NonceSize  = 16 // of an entry's nonce: who knows a user's id cannot find the user's leaf by trying
)

// Hash is a SHA-256.
type Hash = [sha256.Size]byte

// Random are so many random bytes.
func Random(size int) []byte {
	random := make([]byte, size)
	_, _ = rand.Read(random) // it never fails: see crypto/rand
	return random
}

// Commitment is what is published of a secret before anybody enters.
func Commitment(secret []byte) Hash { return sha256.Sum256(secret) }

// Leaf is an entry of the published list. No two have one text: ids have no line break, nonces have one length.
func Leaf(voucherID string, nonce []byte, userID string) Hash {
	text := make([]byte, 0, len(Algorithm)+len(voucherID)+NonceSize+len(userID)+16)
	text = append(text, Algorithm+" leaf\n"...)
	text = append(text, voucherID...)
	text = append(text, '\n')
	text = append(text, nonce...)
	return sha256.Sum256(append(text, userID...))
}

// Root stands for a list of leaves, in whatever order it comes.
func Root(voucherID string, leaves []Hash) Hash {
	sorted := slices.Clone(leaves)
	slices.SortFunc(sorted, compare)
	sum := sha256.New()
	sum.Write([]byte(Algorithm + " root\n" + voucherID + "\n"))
	for i := range sorted {
		sum.Write(sorted[i][:])
	}
	return Hash(sum.Sum(nil))
}

// Seed is what the drawn order depends on beside the entries, and by which algorithm: the secret and, where a beacon was
// named, the value that was drawn in public. Neither has a line break.
func Seed(secret []byte, beacon, value string) (seed []byte, algorithm string) {
	if beacon == "" {
		return secret, Algorithm
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(WithBeacon + " seed\n" + beacon + "\n" + value))
	return mac.Sum(nil), WithBeacon
}

// Order is the drawn order by a Seed: the indexes of the leaves, the first winner's first.
func Order(seed []byte, root Hash, leaves []Hash) []int32 {
	type ranked struct {
		key  Hash
		leaf int32
	}
	mac := hmac.New(sha256.New, seed)
	list := make([]ranked, len(leaves))
	for i := range leaves {
		mac.Reset()
		mac.Write(root[:])
		mac.Write(leaves[i][:])
		mac.Sum(list[i].key[:0])
		list[i].leaf = int32(i)
	}
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(compare(a.key, b.key), compare(leaves[a.leaf], leaves[b.leaf]))
	})
	order := make([]int32, len(list))
	for place := range list {
		order[place] = list[place].leaf
	}
	return order
}

func compare(a, b Hash) int { return bytes.Compare(a[:], b[:]) }

// ErrNotDrawn says of a proof that there is nothing to check yet.
var ErrNotDrawn = errors.New("it is not drawn yet: the secret is not published")

// Verify recomputes a draw from its proof and its leaves in drawn order. Its error says what does not hold.
func Verify(proof model.Draw, drawn []string) error {
	if _, algorithm := Seed(nil, proof.Beacon, ""); proof.Algorithm != algorithm {
		return fmt.Errorf("it was drawn by %q, and not by %q", proof.Algorithm, algorithm)
	}
	if proof.Secret == "" {
		return ErrNotDrawn
	}
	secret, err := hex.DecodeString(proof.Secret)
	if err != nil || len(secret) != SecretSize {
		return errors.New("the secret is none")
	}
	if commitment := Commitment(secret); hex.EncodeToString(commitment[:]) != proof.Commitment {
		return errors.New("the secret is not the one of the commitment")
	}
	if int64(len(drawn)) != proof.Entries {
		return fmt.Errorf("the list has %d leaves, the proof says %d entries", len(drawn), proof.Entries)
	}
	leaves := make([]Hash, len(drawn))
	for i, text := range drawn {
		leaf, err := hex.DecodeString(text)
		if err != nil || len(leaf) != sha256.Size {
			return fmt.Errorf("leaf %d of the list is none: %q", i+1, text)
		}
		leaves[i] = Hash(leaf)
	}
	root := Root(proof.VoucherID, leaves)
	if hex.EncodeToString(root[:]) != proof.Root {
		return errors.New("the list is not the one of the root")
	}
	seed, _ := Seed(secret, proof.Beacon, proof.Value)
	for place, leaf := range Order(seed, root, leaves) {
		if leaves[leaf] != leaves[place] {
			return fmt.Errorf("place %d belongs to leaf %x and was given to %x", place+1, leaves[leaf], leaves[place])
		}
		if place > 0 && leaves[place] == leaves[place-1] {
			return fmt.Errorf("leaf %x has two places", leaves[place])
		}
	}
	if proof.Winners > proof.Entries {
		return fmt.Errorf("%d winners of %d entries", proof.Winners, proof.Entries)
	}
	return nil
}
