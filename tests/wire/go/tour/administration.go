package main

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// administration is given names that nobody has: a queue and a topic. The client speaks HTTPS only, and
// uses the port of the connection string.
func administration(t *tour, entities ...string) {
	queue, topic := entities[0], entities[1]
	office := t.office()
	space := must(office.GetNamespaceProperties(t.ctx, nil))
	say("namespace", space.Name, space.SKU)
	theQueue(t, office, queue)
	theTopic(t, office, topic)
}

func (t *tour) office() *admin.Client {
	if token != "" {
		return must(admin.NewClient(t.connection, webToken{}, nil))
	}
	return must(admin.NewClientFromConnectionString(t.connection, nil))
}

func theQueue(t *tour, office *admin.Client, queue string) {
	made := must(office.CreateQueue(t.ctx, queue, &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		LockDuration:                     pointer("PT45S"),
		MaxDeliveryCount:                 pointer(int32(7)),
		RequiresDuplicateDetection:       pointer(true),
		DeadLetteringOnMessageExpiration: pointer(true),
		UserMetadata:                     pointer("by <Go> & friends"),
		AuthorizationRules: []admin.AuthorizationRule{{
			KeyName: pointer("reader"), AccessRights: []admin.AccessRight{admin.AccessRightListen},
			PrimaryKey: pointer("first"), SecondaryKey: pointer("second"),
		}},
	}}))
	say("made", *made.LockDuration, *made.MaxDeliveryCount, *made.RequiresDuplicateDetection, *made.UserMetadata)
	say("rules", *made.AuthorizationRules[0].KeyName, made.AuthorizationRules[0].AccessRights)
	_, err := office.CreateQueue(t.ctx, queue, nil)
	say("twice", status(err))

	found := must(office.GetQueue(t.ctx, queue, nil))
	found.MaxDeliveryCount = pointer(int32(3))
	found.Status = pointer(admin.EntityStatusReceiveDisabled)
	changed := must(office.UpdateQueue(t.ctx, queue, found.QueueProperties, nil))
	say("changed", *changed.MaxDeliveryCount, *changed.Status, *changed.LockDuration)

	check(t.sender(queue).SendMessage(t.ctx, message("counted"), nil))
	counts := must(office.GetQueueRuntimeProperties(t.ctx, queue, nil))
	say("counts", counts.ActiveMessageCount, counts.TotalMessageCount, counts.SizeInBytes > 0, counts.CreatedAt.IsZero())

	listed := 0
	for pager := office.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 50}); pager.More(); {
		for _, each := range must(pager.NextPage(t.ctx)).Queues {
			if each.QueueName == queue {
				listed++
			}
		}
	}
	say("listed", listed)
	forwarding := must(office.CreateQueue(t.ctx, queue+"-in", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		ForwardTo: pointer(queue), RequiresSession: pointer(true),
	}}))
	say("forwards", *forwarding.ForwardTo == *must(office.GetQueue(t.ctx, queue+"-in", nil)).ForwardTo, *forwarding.ForwardTo)
	must(office.DeleteQueue(t.ctx, queue+"-in", nil))
	must(office.CreateQueue(t.ctx, queue+"-s", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		RequiresSession: pointer(true),
	}}))
	into := must(office.CreateQueue(t.ctx, queue+"-in", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		ForwardTo: pointer(queue + "-s"),
	}}))
	say("into sessions", *into.ForwardTo == queue+"-s")
	must(office.DeleteQueue(t.ctx, queue+"-in", nil))
	must(office.DeleteQueue(t.ctx, queue+"-s", nil))
	_, err = office.CreateQueue(t.ctx, queue+"-big", &admin.CreateQueueOptions{Properties: &admin.QueueProperties{
		MaxMessageSizeInKilobytes: pointer(int64(102401)),
	}})
	say("size", status(err), strings.Contains(err.Error(), "between 1024 and 102400"))
	must(office.DeleteQueue(t.ctx, queue, nil))
	gone := must(office.GetQueue(t.ctx, queue, nil))
	say("gone", gone == nil)
	_, err = office.DeleteQueue(t.ctx, queue, nil)
	say("twice", status(err))
}

func theTopic(t *tour, office *admin.Client, topic string) {
	must(office.CreateTopic(t.ctx, topic, &admin.CreateTopicOptions{Properties: &admin.TopicProperties{
		DefaultMessageTimeToLive: pointer("P1D"),
	}}))
	found := must(office.GetTopic(t.ctx, topic, nil))
	say("topic", *found.DefaultMessageTimeToLive, *found.Status)
	made := must(office.CreateSubscription(t.ctx, topic, "s", &admin.CreateSubscriptionOptions{Properties: &admin.SubscriptionProperties{
		LockDuration: pointer("PT10S"),
	}}))
	say("subscription", made.SubscriptionName, *made.LockDuration)
	fresh := must(office.GetSubscriptionRuntimeProperties(t.ctx, topic, "s", nil))
	say("accessed", fresh.AccessedAt.Equal(fresh.CreatedAt))
	say("missing", must(office.GetSubscription(t.ctx, topic, "no", nil)) == nil, must(office.GetRule(t.ctx, topic, "s", "no", nil)) == nil)
	at := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
	must(office.CreateRule(t.ctx, topic, "s", &admin.CreateRuleOptions{
		Name:   pointer("date"),
		Filter: &admin.SQLFilter{Expression: "d < @d", Parameters: map[string]any{"@d": at}},
	}))
	date := must(office.GetRule(t.ctx, topic, "s", "date", nil)).Filter.(*admin.SQLFilter)
	say("date", date.Parameters["@d"].(time.Time).Equal(at))
	must(office.DeleteRule(t.ctx, topic, "s", "date", nil))
	must(office.CreateRule(t.ctx, topic, "s", &admin.CreateRuleOptions{
		Name:   pointer("sql"),
		Filter: &admin.SQLFilter{Expression: "n > @least", Parameters: map[string]any{"@least": int64(5)}},
		Action: &admin.SQLAction{Expression: "SET seen = TRUE"},
	}))
	must(office.CreateRule(t.ctx, topic, "s", &admin.CreateRuleOptions{
		Name: pointer("correlation"),
		Filter: &admin.CorrelationFilter{
			Subject: pointer("weather"), ApplicationProperties: map[string]any{"flag": true, "text": "t"},
		},
	}))
	must(office.DeleteRule(t.ctx, topic, "s", "$Default", nil))
	sql := must(office.GetRule(t.ctx, topic, "s", "sql", nil))
	say(sql.Filter.(*admin.SQLFilter).Expression, sql.Filter.(*admin.SQLFilter).Parameters["@least"],
		sql.Action.(*admin.SQLAction).Expression)
	correlation := must(office.GetRule(t.ctx, topic, "s", "correlation", nil)).Filter.(*admin.CorrelationFilter)
	say(*correlation.Subject, correlation.ApplicationProperties["flag"], correlation.ApplicationProperties["text"])
	must(office.UpdateRule(t.ctx, topic, "s", admin.RuleProperties{Name: "correlation", Filter: &admin.FalseFilter{}}))
	var names []string
	for pager := office.NewListRulesPager(topic, "s", nil); pager.More(); {
		for _, rule := range must(pager.NextPage(t.ctx)).Rules {
			names = append(names, rule.Name)
		}
	}
	slices.Sort(names)
	say("rules", strings.Join(names, ","))

	sender := t.sender(topic)
	for _, number := range []int64{3, 9} {
		sent := message("counted")
		sent.ApplicationProperties = map[string]any{"n": number}
		check(sender.SendMessage(t.ctx, sent, nil))
	}
	counts := must(office.GetSubscriptionRuntimeProperties(t.ctx, topic, "s", nil))
	say("taken", counts.ActiveMessageCount)
	live := must(office.GetTopicRuntimeProperties(t.ctx, topic, nil))
	say("subscriptions", live.SubscriptionCount)
	must(office.DeleteSubscription(t.ctx, topic, "s", nil))
	must(office.DeleteTopic(t.ctx, topic, nil))
	say("gone", must(office.GetTopic(t.ctx, topic, nil)) == nil)
}

// status is what HTTP answered with.
func status(err error) int {
	var refused *azcore.ResponseError
	if errors.As(err, &refused) {
		return refused.StatusCode
	}
	return 0
}
