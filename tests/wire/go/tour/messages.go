package main

import (
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

func settling(t *tour, entities ...string) {
	queue := entities[0]
	sender, receiver := t.sender(queue), t.receiver(queue, nil)
	batch := must(sender.NewMessageBatch(t.ctx, nil))
	for _, text := range []string{"complete", "abandon", "defer", "dead-letter", "renew"} {
		check(batch.AddMessage(message(text), nil))
	}
	check(sender.SendMessageBatch(t.ctx, batch, nil))
	got := t.take(receiver, 5)
	for _, each := range got {
		say("received", string(each.Body), each.DeliveryCount)
	}
	check(receiver.CompleteMessage(t.ctx, got[0], nil))
	check(receiver.AbandonMessage(t.ctx, got[1], &azservicebus.AbandonMessageOptions{
		PropertiesToModify: map[string]any{"why": "busy"},
	}))
	check(receiver.DeferMessage(t.ctx, got[2], nil))
	check(receiver.DeadLetterMessage(t.ctx, got[3], &azservicebus.DeadLetterOptions{
		Reason: pointer("bad"), ErrorDescription: pointer("very bad"),
	}))
	before := *got[4].LockedUntil
	time.Sleep(10 * time.Millisecond)
	check(receiver.RenewMessageLock(t.ctx, got[4], nil))
	say("renewed", got[4].LockedUntil.After(before))
	check(receiver.CompleteMessage(t.ctx, got[4], nil))

	again := t.one(receiver)
	say("again", string(again.Body), again.DeliveryCount, again.ApplicationProperties["why"])
	check(receiver.CompleteMessage(t.ctx, again, nil))
	peeked := must(receiver.PeekMessages(t.ctx, 10, &azservicebus.PeekMessagesOptions{FromSequenceNumber: pointer(int64(0))}))
	say("peeked", len(peeked), string(peeked[0].Body), peeked[0].State == azservicebus.MessageStateDeferred)
	deferred := must(receiver.ReceiveDeferredMessages(t.ctx, []int64{*got[2].SequenceNumber}, nil))
	say("deferred", string(deferred[0].Body))
	check(receiver.CompleteMessage(t.ctx, deferred[0], nil))

	dead := t.receiver(queue, &azservicebus.ReceiverOptions{
		SubQueue:    azservicebus.SubQueueDeadLetter,
		ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
	})
	letter := t.one(dead)
	say("dead", string(letter.Body), *letter.DeadLetterReason, "/", *letter.DeadLetterErrorDescription)
	left := must(receiver.PeekMessages(t.ctx, 10, &azservicebus.PeekMessagesOptions{FromSequenceNumber: pointer(int64(0))}))
	say("left", len(left))
}

func scheduling(t *tour, entities ...string) {
	sender, receiver := t.sender(entities[0]), t.receiver(entities[0], nil)
	later := time.Now().Add(time.Hour)
	numbers := must(sender.ScheduleMessages(t.ctx, []*azservicebus.Message{message("a"), message("b")}, later, nil))
	say("scheduled", len(numbers))
	check(sender.CancelScheduledMessages(t.ctx, numbers[:1], nil))
	for _, each := range must(receiver.PeekMessages(t.ctx, 10, nil)) {
		say("waits", string(each.Body), each.State == azservicebus.MessageStateScheduled,
			each.ScheduledEnqueueTime.Sub(later).Abs() < time.Second)
	}
	soon := time.Now().Add(2 * time.Second)
	must(sender.ScheduleMessages(t.ctx, []*azservicebus.Message{message("soon")}, soon, nil))
	got := t.one(receiver)
	say("came", string(got.Body), time.Since(soon) > -50*time.Millisecond, got.State == azservicebus.MessageStateScheduled)
	check(receiver.CompleteMessage(t.ctx, got, nil))
}

func sessions(t *tour, entities ...string) {
	queue := entities[0]
	sender := t.sender(queue)
	for _, text := range []string{"1", "2"} {
		for _, id := range []string{"red", "blue"} {
			check(sender.SendMessage(t.ctx, &azservicebus.Message{Body: []byte(id + text), SessionID: &id}, nil))
		}
	}
	var listed []string
	for pager := t.client.NewListSessionsForQueuePager(queue, nil); pager.More(); {
		listed = append(listed, must(pager.NextPage(t.ctx)).Sessions...)
	}
	slices.Sort(listed)
	say("listed", strings.Join(listed, ","))

	blue := must(t.client.AcceptSessionForQueue(t.ctx, queue, "blue", nil))
	_, err := t.client.AcceptSessionForQueue(t.ctx, queue, "blue", nil)
	say("held", err != nil)
	before := blue.LockedUntil()
	time.Sleep(10 * time.Millisecond)
	check(blue.RenewSessionLock(t.ctx, nil))
	say("renewed", blue.LockedUntil().After(before))
	check(blue.SetSessionState(t.ctx, []byte("half way"), nil))
	say("state", string(must(blue.GetSessionState(t.ctx, nil))))
	check(blue.SetSessionState(t.ctx, []byte{}, nil))
	say("cleared", must(blue.GetSessionState(t.ctx, nil)) == nil)
	first := t.one(blue)
	say("locked", first.LockedUntil.Equal(blue.LockedUntil()))
	check(blue.DeferMessage(t.ctx, first, nil))
	deferred := must(blue.ReceiveDeferredMessages(t.ctx, []int64{*first.SequenceNumber}, nil))[0]
	say("deferred", string(deferred.Body), deferred.State == azservicebus.MessageStateDeferred,
		deferred.LockedUntil.Equal(blue.LockedUntil()))
	check(blue.CompleteMessage(t.ctx, deferred, nil))
	t.finish(blue, 1)

	next := must(t.client.AcceptNextSessionForQueue(t.ctx, queue, nil))
	say("next", next.SessionID())
	t.finish(next, 2)
}

// finish completes messages of a session and lets it go.
func (t *tour) finish(session *azservicebus.SessionReceiver, count int) {
	for _, each := range t.take(session, count) {
		say("got", string(each.Body), *each.SessionID)
		check(session.CompleteMessage(t.ctx, each, nil))
	}
	check(session.Close(t.ctx))
}

func topics(t *tour, entities ...string) {
	topic := entities[0]
	sender := t.sender(topic)
	sent := message("news")
	sent.Subject, sent.ContentType, sent.MessageID = pointer("weather"), pointer("text/plain"), pointer("m-1")
	sent.ApplicationProperties = map[string]any{"number": int64(7), "text": "t", "flag": true, "double": 0.5}
	check(sender.SendMessage(t.ctx, sent, nil))
	for _, subscription := range entities[1:] {
		receiver := must(t.client.NewReceiverForSubscription(topic, subscription, nil))
		got := t.one(receiver)
		say(subscription, string(got.Body), *got.Subject, *got.ContentType, got.MessageID)
		say(got.ApplicationProperties["number"], got.ApplicationProperties["text"],
			got.ApplicationProperties["flag"], got.ApplicationProperties["double"])
		say("numbers", got.EnqueuedSequenceNumber != nil, got.State == azservicebus.MessageStateActive)
		check(receiver.CompleteMessage(t.ctx, got, nil))
	}
}

func refusals(t *tour, entities ...string) {
	say("nowhere", code(t.sender("nowhere").SendMessage(t.ctx, message("x"), nil)))
	stranger := t.open(strings.Replace(t.connection, "SharedAccessKey=", "SharedAccessKey=not-", 1))
	sender := must(stranger.NewSender(entities[0], nil))
	say("stranger", code(sender.SendMessage(t.ctx, message("x"), nil)))

	check(t.sender(entities[0]).SendMessage(t.ctx, message("x"), nil))
	receiver := t.receiver(entities[0], nil)
	got := t.one(receiver)
	check(receiver.CompleteMessage(t.ctx, got, nil))
	say("twice", code(receiver.RenewMessageLock(t.ctx, got, nil)))
	batch := must(t.sender(entities[0]).NewMessageBatch(t.ctx, nil))
	say("large", batch.AddMessage(message(strings.Repeat("x", 300_000)), nil))
}
