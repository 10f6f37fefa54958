package signin

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// seal encrypts what a browser keeps for us, so that it can neither be read nor changed there.
type seal struct{ aead cipher.AEAD }

func newSeal(secret []byte) (*seal, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "scheduler console sign-in v1", 32)
	if err != nil {
		return nil, fmt.Errorf("derive the key of sign-ins: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("use the key of sign-ins: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("use the key of sign-ins: %w", err)
	}
	return &seal{aead}, nil
}

// Seal writes a value for one purpose as text that fits into a cookie.
func (s *seal) Seal(purpose string, value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("seal: %w", err)
	}
	nonce := make([]byte, s.aead.NonceSize())
	_, _ = rand.Read(nonce) // it never fails; see its documentation
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, text, []byte(purpose))), nil
}

// Open reads what Seal wrote for the same purpose.
func (s *seal) Open(purpose, sealed string, into any) error {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(sealed)
	if err != nil || len(raw) < s.aead.NonceSize() {
		return errors.New("the text was not sealed here")
	}
	at := s.aead.NonceSize()
	text, err := s.aead.Open(nil, raw[:at], raw[at:], []byte(purpose))
	if err != nil {
		return errors.New("the text was not sealed here")
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read what was sealed: %w", err)
	}
	return nil
}
