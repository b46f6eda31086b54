// Package registry asks a schema registry, and registers schemas for setup, by the API that Confluent, Redpanda, Karapace and
// Apicurio (below /apis/ccompat/v7) have.
//
// Every failure is a *fault.Error: KindRetry where the registry cannot be reached, KindRefused where
// a person has to act. Answers are bounded, redirects are not followed, and secrets are read at each
// request.
package registry
