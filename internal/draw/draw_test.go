package draw_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"seckill/internal/draw"
	"seckill/internal/workshop/check"
	"seckill/model"
)

// drawn is a draw of so many entries, whose secret and nonces are counted bytes.
func drawn(entries int, beacon ...string) (model.Draw, []string) {
	secret := make([]byte, draw.SecretSize)
	for i := range secret {
		secret[i] = byte(i)
	}
	leaves := make([]draw.Hash, entries)
	for i := range leaves {
		nonce := make([]byte, draw.NonceSize)
		nonce[0], nonce[1] = byte(i), byte(i>>8)
		leaves[i] = draw.Leaf("v1", nonce, fmt.Sprint("user-", i))
	}
	root, commitment := draw.Root("v1", leaves), draw.Commitment(secret)
	list := make([]string, entries)
	beacon = append(beacon, "", "")
	seed, algorithm := draw.Seed(secret, beacon[0], beacon[1])
	for place, leaf := range draw.Order(seed, root, leaves) {
		list[place] = hex.EncodeToString(leaves[leaf][:])
	}
	return model.Draw{
		VoucherID: "v1", Algorithm: algorithm, Beacon: beacon[0], Value: beacon[1], Commitment: hex.EncodeToString(commitment[:]),
		Entries: int64(entries),
		Root:    hex.EncodeToString(root[:]), Secret: hex.EncodeToString(secret), Winners: int64(min(entries, 2)),
	}, list
}

// The figures were computed by another program: see docs/draw.md.
func TestKnownDraw(t *testing.T) {
	t.Parallel()
	_, list := drawn(4, "the lottery of 11 November", "7 11 23 42")
	check.Equal(t, "order by a beacon", fmt.Sprint(list),
		"[6384b220f667faf8de1beace0bcfb70b3e714a8148fba853cd312021a11c764b c103ba06b819ec15709f3d11c92f4bd816cf726c23010b4fb19058cd54d8e0ab 1e84097aba9db061c465cc725ab1eea08fc61a09288c1ee649931a0f99f3b407 c06607eb94d194bfdbfa24a6779b40cc28c906ac69a65e71bb49dc7f9cccb6ae]")
	proof, list := drawn(4)
	check.Equal(t, "commitment", proof.Commitment, "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd")
	check.Equal(t, "root", proof.Root, "f75e59c9ba6bb265d7a085ee7964abafb936d8e54ae5d18a98f9edc2aba40929")
	check.Equal(t, "order", fmt.Sprint(list),
		"[6384b220f667faf8de1beace0bcfb70b3e714a8148fba853cd312021a11c764b 1e84097aba9db061c465cc725ab1eea08fc61a09288c1ee649931a0f99f3b407 c06607eb94d194bfdbfa24a6779b40cc28c906ac69a65e71bb49dc7f9cccb6ae c103ba06b819ec15709f3d11c92f4bd816cf726c23010b4fb19058cd54d8e0ab]")
}

func TestATamperedDrawDoesNotHold(t *testing.T) {
	t.Parallel()
	flip := func(text *string) {
		bytes := check.Value(hex.DecodeString(*text))(t)
		bytes[len(bytes)-1] ^= 1
		*text = hex.EncodeToString(bytes)
	}
	for name, tamper := range map[string]func(*model.Draw, []string) []string{
		"another secret":         func(p *model.Draw, list []string) []string { flip(&p.Secret); return list },
		"another commitment":     func(p *model.Draw, list []string) []string { flip(&p.Commitment); return list },
		"another root":           func(p *model.Draw, list []string) []string { flip(&p.Root); return list },
		"of another voucher":     func(p *model.Draw, list []string) []string { p.VoucherID = "v2"; return list },
		"another algorithm":      func(p *model.Draw, list []string) []string { p.Algorithm += "0"; return list },
		"no secret":              func(p *model.Draw, list []string) []string { p.Secret = ""; return list },
		"another leaf":           func(_ *model.Draw, list []string) []string { flip(&list[7]); return list },
		"no leaf":                func(_ *model.Draw, list []string) []string { list[7] = "?"; return list },
		"a moved winner":         func(_ *model.Draw, list []string) []string { list[0], list[9] = list[9], list[0]; return list },
		"one left out":           func(_ *model.Draw, list []string) []string { return list[1:] },
		"one left out and said":  func(p *model.Draw, list []string) []string { p.Entries--; return list[1:] },
		"one put in":             func(p *model.Draw, list []string) []string { p.Entries++; return append(list, list[0]) },
		"more winners than were": func(p *model.Draw, list []string) []string { p.Winners = p.Entries + 1; return list },
		"another value":          func(p *model.Draw, list []string) []string { p.Value += " "; return list },
		"another beacon":         func(p *model.Draw, list []string) []string { p.Beacon += "."; return list },
		"no beacon any more": func(p *model.Draw, list []string) []string {
			p.Algorithm, p.Beacon = draw.Algorithm, ""
			return list
		},
	} {
		proof, list := drawn(20, "lottery", "1 2 3")
		check.Must(t, draw.Verify(proof, list))
		list = tamper(&proof, list)
		check.That(t, draw.Verify(proof, list) != nil, "%s: it holds", name)
	}
}

// A leaf twice in a list that was rooted with it is no draw: somebody would have two places.
func TestNobodyHasTwoPlaces(t *testing.T) {
	t.Parallel()
	proof, list := drawn(3)
	leaves := make([]draw.Hash, 0, 4)
	for _, text := range append(list, list[1]) {
		leaves = append(leaves, draw.Hash(check.Value(hex.DecodeString(text))(t)))
	}
	secret := check.Value(hex.DecodeString(proof.Secret))(t)
	root := draw.Root("v1", leaves)
	proof.Root, proof.Entries, list = hex.EncodeToString(root[:]), 4, nil
	for _, leaf := range draw.Order(secret, root, leaves) {
		list = append(list, hex.EncodeToString(leaves[leaf][:]))
	}
	check.That(t, draw.Verify(proof, list) != nil, "a leaf has two places")
}

// FuzzLeaf: no two entries have one leaf, however their parts are cut.
func FuzzLeaf(f *testing.F) {
	f.Add("v1", "user", "v", "1user", byte(0))
	f.Fuzz(func(t *testing.T, voucher, user, otherVoucher, otherUser string, n byte) {
		if !model.ValidID(voucher) || !model.ValidID(otherVoucher) || !model.ValidUserID(user) ||
			!model.ValidUserID(otherUser) {
			return
		}
		nonce := slices.Repeat([]byte{n}, draw.NonceSize)
		same := voucher == otherVoucher && user == otherUser
		check.Equal(t, "one leaf", draw.Leaf(voucher, nonce, user) == draw.Leaf(otherVoucher, nonce, otherUser), same)
	})
}
