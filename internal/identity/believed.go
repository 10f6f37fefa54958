package identity

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// believedFor is how long a token that was verified is not verified again: a key
	// that its issuer takes back counts for as much longer.
	believedFor = 2 * time.Second
	// maxBelieved bounds the tokens that are remembered.
	maxBelieved = 10_000
)

// believed remembers tokens that were verified, by their SHA-256, because verifying
// one takes longer than reading a row. It remembers none that was refused. Whether
// a token has expired is asked each time.
type believed struct {
	mu     sync.Mutex
	tokens map[[sha256.Size]byte]belief
}

type belief struct {
	who     Principal
	expires time.Time // with the leeway
	at      clock.Mark
}

// find returns whose a token is, if it was verified a moment ago.
func (b *believed) find(sum [sha256.Size]byte, now time.Time) (Principal, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.tokens[sum]
	return found.who, ok && found.at.Elapsed() < believedFor && now.Before(found.expires)
}

func (b *believed) keep(sum [sha256.Size]byte, one belief) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil || len(b.tokens) >= maxBelieved {
		b.tokens = map[[sha256.Size]byte]belief{}
	}
	b.tokens[sum] = one
}
