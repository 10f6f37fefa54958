package send

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/scheduler-service/scheduler/internal/notification"
)

// maxSlack is how many characters Slack shows of the text of a section.
const maxSlack = 3000

// toSlack makes the request of Slack's incoming webhooks: the text alone is for other
// chats and for the notice on a phone.
func toSlack(ctx context.Context, l letter, events []notification.Event, opened secrets) (*http.Request, error) {
	headline := title(events, l.count)
	lines := make([]string, len(events))
	for i := range events {
		lines[i] = "• " + sentence(&events[i])
	}
	raw, err := json.Marshal(map[string]any{
		"text": escape.Replace(headline),
		"blocks": []any{
			map[string]any{"type": "section", "text": map[string]string{"type": "mrkdwn", "text": cut("*"+escape.Replace(headline)+"*\n"+escape.Replace(strings.Join(lines, "\n")), maxSlack)}},
		},
	})
	if err != nil {
		return nil, err
	}
	return post(ctx, opened.url.Reveal(), raw)
}

// escape takes the meaning out of what Slack reads as markup: nobody is mentioned and no
// link made by the name of a job.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// cut shortens a text to so many characters.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
