package identity

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// dates are the claims that are numbers of seconds (RFC 7519, section 2). The
// JWT library also reads them from text.
var dates = []string{"exp", "nbf", "iat"}

// checkStrict refuses a token whose header or claims another reader may
// understand otherwise: a name that stands twice, also in other letters, and a
// date that is text. The caller has verified the token.
func checkStrict(token string) error {
	for _, part := range strings.SplitN(token, ".", 3)[:2] {
		text, err := base64.RawURLEncoding.DecodeString(part)
		if err != nil {
			return unauthenticated("the token is not a well-formed JWT", err)
		}
		if err := checkObject(string(text)); err != nil {
			return unauthenticated("the token "+err.Error(), nil)
		}
	}
	return nil
}

func checkObject(text string) error {
	d := json.NewDecoder(strings.NewReader(text))
	if _, err := d.Token(); err != nil {
		return errors.New("is not a well-formed JWT")
	}
	var seen []string
	for d.More() {
		token, err := d.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return errors.New("is not a well-formed JWT")
		}
		name = strings.ToLower(name)
		if slices.Contains(seen, name) {
			return errors.New("has a header parameter or claim twice")
		}
		seen = append(seen, name)
		var value any
		if err := d.Decode(&value); err != nil {
			return errors.New("is not a well-formed JWT")
		}
		if _, number := value.(float64); slices.Contains(dates, name) && !number {
			return errors.New("has a claim " + name + " that is not a number of seconds")
		}
	}
	return nil
}
