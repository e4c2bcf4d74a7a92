package load

// figures are what kube-apiserver v1.36.3 with etcd v3.7.3 needed for a
// scenario, and what Quorate is allowed, in microseconds of CPU per operation.
type figures struct {
	One   float64 `json:"peerOne"`   // one etcd member, one apiserver
	Three float64 `json:"peerThree"` // three etcd members, three apiservers
	Goal  float64 `json:"goal"`      // a fifth of three
	Limit float64 `json:"limit"`     // what no row may exceed: half of three
}

func peer(one, three, limit float64) figures {
	return figures{One: one, Three: three, Goal: three / 5, Limit: limit}
}

// peers were measured with the same objects, connections and workers, audit off,
// over HTTPS on two cores that the generator shares. See bench/README.md.
var peers = map[string]figures{
	"create": peer(550, 1116, 560),
	"get":    peer(248, 411, 200),
	"get0":   peer(158, 201, 100),
	"list0":  peer(97_400, 112_400, 56_000),
	"list":   peer(92_300, 110_900, 56_000),
	"page":   peer(6_700, 9_660, 4_800),
	"update": peer(713, 1192, 600),
	"patch":  peer(804, 1492, 750),
	"apply":  peer(922, 1869, 935),
	"watch":  peer(12.9, 22.2, 11),
}

// peerBare is what a bare Go HTTPS server needed to send one of the objects on the
// peer's machine, with the same load.
const peerBare = 24.5

// Resident memory of all the peer's processes after all rows, in MiB.
const (
	peerMemoryOne   = 887
	peerMemoryThree = 2367
)
