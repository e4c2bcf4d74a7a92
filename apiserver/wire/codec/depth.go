package codec

import (
	"encoding/binary"
	"errors"
)

// maxMessages is how many messages a message may have, and how many objects and arrays a
// JSON document. Each can be two bytes that become a kilobyte of Go, so 3 MB would be
// gigabytes; an object that could be stored has fewer.
const maxMessages = 1 << 19

// maxLengths bounds what has a length in protobuf: that may be bytes, and a Secret of a megabyte may look like as many
// messages, in a few of its own.
const maxLengths = maxMessages + 1<<12

var (
	errTooDeep = errors.New("exceeded max depth")
	errTooMany = errors.New("exceeded max number of fields")
)

// checkDepth refuses a message that has too many others in it, or could nest deeper than
// JSON may. The generated code
// calls itself for each level, and a stack that overflows ends the process: 2.5 MB of a
// schema within a schema are enough. What is a message is not known
// here, so everything that has a length counts as one: strings that look like messages
// do not look like deep ones. Nothing is read twice.
func checkDepth(message []byte) error {
	ends := []int{len(message)} // of the messages that are open
	messages := 0
	for at := 0; len(ends) > 0; {
		end := ends[len(ends)-1]
		next, size, has := field(message[at:end])
		if has {
			messages++
		}
		switch {
		case messages > maxLengths:
			return errTooMany
		case next == 0: // the end, or no message
			at, ends = end, ends[:len(ends)-1]
		case size == 0:
			at += next
		case len(ends) >= maxDepth:
			return errTooDeep
		default:
			at += next
			ends = append(ends, at+size)
		}
	}
	return nil
}

// field looks at the first field of a message: how many bytes belong to it, without
// those of a message in it, and how many these are, if it can have any. next is 0 if there
// is no whole field.
func field(b []byte) (next, size int, has bool) {
	tag, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, 0, false
	}
	next = n
	switch tag & 7 {
	case 0:
		_, n = binary.Uvarint(b[next:])
		if n <= 0 {
			return 0, 0, false
		}
		next += n
	case 1:
		next += 8
	case 2:
		length, n := binary.Uvarint(b[next:])
		if next += n; n <= 0 || length > uint64(len(b)-next) {
			return 0, 0, false
		}
		return next, int(length), true
	case 3, 4: // the fields of a group follow
	case 5:
		next += 4
	default:
		return 0, 0, false
	}
	if next > len(b) {
		return 0, 0, false
	}
	return next, 0, false
}
