package app

import (
	"crypto/subtle"
	"sync"
)

// code signs the console in on a development installation: it stands in the address
// that the standalone program prints, and is good once.
type code struct {
	text  string
	token func() (string, error)

	mu   sync.Mutex
	used bool
}

func newCode(token func() (string, error)) *code { return &code{text: randomKey(), token: token} }

// redeem exchanges the code for a token. It reports false for another code, and
// after the first time.
func (c *code) redeem(given string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used || subtle.ConstantTimeCompare([]byte(given), []byte(c.text)) != 1 {
		return "", false
	}
	token, err := c.token()
	c.used = err == nil
	return token, c.used
}
