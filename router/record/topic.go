package record

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxTopicName is the longest name that Kafka takes.
const maxTopicName = 249

var (
	errTopicLength = fmt.Errorf("has 1 to %d characters", maxTopicName)
	errTopicDots   = errors.New("is neither one dot nor two")
	ErrTopicBytes  = errors.New("has only letters and digits of ASCII, dot, underscore and hyphen")
)

// CheckTopic applies Kafka's rules for the name of a topic. Its errors continue "a
// name …".
func CheckTopic(name string) error { return CheckTopicName([]byte(name)) }

// CheckTopicName applies Kafka's rules for the name of a topic.
func CheckTopicName(name []byte) error {
	if len(name) == 0 || len(name) > maxTopicName {
		return errTopicLength
	}
	if string(name) == "." || string(name) == ".." {
		return errTopicDots
	}
	return CheckTopicCharacters(name)
}

// CheckTopicCharacters refuses what cannot be part of a topic's name.
func CheckTopicCharacters(name []byte) error {
	for _, c := range name {
		if !InTopic(rune(c)) {
			return ErrTopicBytes
		}
	}
	return nil
}

// InTopic reports whether a topic's name may have the character.
func InTopic(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}

// ShowTopic is a topic name fit for an error message.
func ShowTopic(name []byte) string {
	const most = 80
	if len(name) <= most {
		return strconv.Quote(string(name))
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(string(name[:cut])), len(name))
}
