package export

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

// status is what a store answered by HTTP; zero: nothing.
func status(err error) int {
	if r, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		return r.HTTPStatusCode()
	}
	return 0
}

// code is what a store answered by name.
func code(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return ""
}

const needsCondition = "the store has to know the condition If-None-Match: * of a write, so that no file is written over"

// failure says what a request came to, and who can change it. It has nothing of the request but
// its name: a URL and headers may hold a signature.
func (b *Bucket) failure(err error) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*Refusal](err); ours {
		return err
	}
	short := errors.New(describe(err))
	switch name, answer := code(err), status(err); {
	case name == "NoSuchBucket":
		return &Refusal{Err: fmt.Errorf("bucket %s does not exist (%w)", b.place.Bucket, short), Key: "to", Hint: "create it, or name another"}
	case name == "PermanentRedirect", name == "AuthorizationHeaderMalformed", answer == http.StatusMovedPermanently:
		return &Refusal{Err: fmt.Errorf("bucket %s is in another region (%w)", b.place.Bucket, short), Key: "region", Hint: "name the region of the bucket"}
	case answer == http.StatusNotImplemented:
		return &Refusal{Err: short, Hint: needsCondition}
	case answer == http.StatusForbidden, answer == http.StatusUnauthorized:
		return &Refusal{Err: short, Hint: "allow s3:ListBucket on the bucket, and s3:PutObject and s3:GetObject on what is below the prefix; credentials come from AWS's usual chain"}
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return fmt.Errorf("bucket %s at %s does not answer (%w)", b.place.Bucket, cmp.Or(b.place.Endpoint, "AWS"), short)
	}
	return short
}

// maxMessage bounds what is shown of a store's own words.
const maxMessage = 300

func describe(err error) string {
	operation := "S3"
	if e, ok := errors.AsType[*smithy.OperationError](err); ok {
		operation = e.OperationName
	}
	text := err.Error()
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		text = strings.Trim(e.ErrorCode()+": "+e.ErrorMessage(), ": ")
		if answer := status(err); answer > 0 {
			text += fmt.Sprintf(" (%d)", answer)
		}
	} else if e, ok := errors.AsType[*url.Error](err); ok {
		text = e.Err.Error()
	} else if e, ok := errors.AsType[*awshttp.ResponseError](err); ok && status(err) == 0 { // given up before an answer
		text = e.Err.Error()
	} else if e, ok := errors.AsType[*smithy.OperationError](err); ok {
		text = e.Err.Error()
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return operation + ": " + text
}
