// Package overtaken finds dead letters that wait although the relay as it is configured sends later
// rows of their keys: relay.on_reject or relay.park_key was changed, or the slot was renamed.
package overtaken
