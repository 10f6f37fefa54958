package chaos

// need is what a kind of fault takes that not every run or machine has.
type need uint8

const (
	needNothing need = iota
	needRedis
	needStandby
	needDisk
	needLibrary
	needSkew
)

// lacks says what this run does without, and why. Anything else that the machine lacks
// is found out when it is made.
func (c Config) lacks() map[need]string {
	out := map[need]string{}
	if c.Backend == "postgres" {
		out[needRedis] = "there is no Redis"
	}
	if !c.InNamespace {
		out[needDisk] = "to mount a small disk takes root"
	}
	if c.Short {
		for _, n := range []need{needStandby, needDisk, needLibrary, needSkew} {
			out[n] = "not in the short form"
		}
	}
	return out
}
