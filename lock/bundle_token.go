package lock

import "context"

// fence makes a token of those of the parts: the greatest, written back to
// enough parts that the next holder, who must share one of them, gets more.
func (b *bundle) fence(ctx context.Context, own *owner) error {
	key := b.q.key()
	token, err := own.fence(key, func() (int64, error) {
		var greatest int64
		for _, p := range b.current() {
			greatest = max(greatest, p.Token())
		}
		if greatest == 0 { // stores without tokens
			return 0, nil
		}
		return greatest, b.raise(ctx, greatest)
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.number = token
	b.unfence = func() { own.unfence(key) }
	return nil
}

func (b *bundle) token() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.number
}

func (b *bundle) raise(ctx context.Context, token int64) error {
	err := b.most("raise the token of", func(l *Lease) error { return l.hold.raise(ctx, token) })
	if err == nil {
		b.mu.Lock()
		b.number = max(b.number, token)
		b.mu.Unlock()
	}
	return err
}
