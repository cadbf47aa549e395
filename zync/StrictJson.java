package zync;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonFactoryBuilder;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadFeature;
import com.fasterxml.jackson.core.exc.InputCoercionException;
import com.fasterxml.jackson.core.util.JsonParserDelegate;
import java.io.IOException;
import java.io.Serializable;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.json.JacksonParser;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantBuilder;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;
import scala.collection.Iterable;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractFunction2;

/**
 * Parses bytes as one JSON value, in one pass, and changes nothing in silence.
 *
 * Spark's own parse_json ignores text after the value, replaces bytes that are not UTF-8, and rounds numbers that a
 * double does not hold. Here each is an error.
 *
 * The result is a struct:
 *
 * - value: the VARIANT; null where the bytes are not one JSON value.
 * - error: null, or text that continues a sentence: "is not UTF-8", "is not one JSON value", or "has a number that
 *   cannot be kept exactly", where the value is not null.
 * - decimals: the most decimals of a number, in a string or not, without zeros at its end; 99 for an exponent.
 * - odd_time: whether there is a number beyond the last second of the year 9999, or a text with a time and no date.
 * - With a schema, typed: the value as that struct, by Spark's reader of JSON; null where it does not fit.
 *
 * By `decimals` and `odd_time` a topic with a schema sees whether a cast to it may have changed a value. Spark's reader
 * and the VARIANT take the same tokens: the text is read once.
 *
 * zync compiles this file by Janino, which Spark contains (zync/java.py).
 */
public class StrictJson implements Serializable {
    /**
     * Records share its table of names, so it neither interns them nor fails where many are alike. Spark's reader finds
     * in the source the text of a number or an object where the schema says STRING.
     */
    private static final JsonFactory FACTORY = ((JsonFactoryBuilder) new JsonFactoryBuilder()
        .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
        .disable(JsonFactory.Feature.FAIL_ON_SYMBOL_HASH_OVERFLOW)
        .enable(StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION))
        .build();
    private static final int DECIMAL_DIGITS = 38;
    private static final int DOUBLE_DIGITS = 17;
    private static final int EXPONENT = 99;
    private static final long LAST_SECOND = 253402300799L;

    private final StructType schema;
    private final String timeZone;
    private transient JacksonParser reader;

    /** Takes the schema of `typed`, or null, and the time zone of timestamps without one. */
    public StrictJson(StructType schema, String timeZone) {
        this.schema = schema;
        this.timeZone = timeZone;
    }

    /** The SQL function: of bytes, and of the schema in JSON if there is one. */
    public static final class Function extends AbstractFunction1 {
        public Object apply(Object arguments) {
            Seq expressions = (Seq) arguments;
            StructType schema = null;
            StructType type = new StructType()
                .add("value", DataTypes.VariantType)
                .add("error", DataTypes.StringType)
                .add("decimals", DataTypes.IntegerType)
                .add("odd_time", DataTypes.BooleanType);
            if (expressions.length() > 1) {
                String json = ((Expression) expressions.apply(1)).eval(null).toString();
                schema = ((StructType) DataType.fromJson(json)).asNullable();
                type = type.add("typed", schema);
            }
            StrictJson parser = new StrictJson(schema, SQLConf$.MODULE$.get().sessionLocalTimeZone());
            Seq bytes = CollectionConverters.asScala(Collections.singletonList(expressions.apply(0))).toList();
            return new Invoke(
                Literal$.MODULE$.fromObject(parser), "parse", type, bytes, Nil$.MODULE$, true, true, true);
        }
    }

    public InternalRow parse(byte[] bytes) {
        if (!UTF8String.fromBytes(bytes).isValid()) {
            return failure("is not UTF-8");
        }
        if (isOtherEncoding(bytes)) {
            return failure("is not one JSON value");
        }
        if (schema != null) {
            try {
                Parser parser = new Parser(FACTORY.createParser(bytes));
                Iterable rows = reader().parse(parser, AS_IT_IS, NO_TEXT);
                parser.readToEnd();
                return result(parser, rows.isEmpty() ? null : rows.head());
            } catch (Exception error) {
                // It does not fit the schema, or is not one JSON value: that is seen below.
            }
        }
        try {
            Parser parser = new Parser(FACTORY.createParser(bytes));
            parser.readToEnd();
            return result(parser, null);
        } catch (IOException error) {
            // As below: it is no JSON.
        } catch (RuntimeException error) {
            // An object has a key twice, or the value is too large for a VARIANT.
        }
        return failure("is not one JSON value");
    }

    private InternalRow result(Parser parser, Object typed) throws IOException {
        Variant value = parser.result();
        Object variant = new VariantVal(value.getValue(), value.getMetadata());
        String error = parser.isInexact ? "has a number that cannot be kept exactly" : null;
        return row(variant, error, parser.decimals, parser.hasOddTime, typed);
    }

    private InternalRow failure(String error) {
        return row(null, error, 0, false, null);
    }

    private InternalRow row(Object variant, String error, int decimals, boolean hasOddTime, Object typed) {
        Object[] values = new Object[schema == null ? 4 : 5];
        values[0] = variant;
        values[1] = UTF8String.fromString(error);
        values[2] = Integer.valueOf(decimals);
        values[3] = Boolean.valueOf(hasOddTime);
        if (schema != null) {
            values[4] = typed;
        }
        return new GenericInternalRow(values);
    }

    private JacksonParser reader() {
        if (reader == null) {
            Map options = new HashMap();
            options.put("enableDateTimeParsingFallback", "false"); // else "202601" would be so many days after 1970
            scala.collection.immutable.Map immutable = (scala.collection.immutable.Map)
                scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(options));
            reader = new JacksonParser(schema, new JSONOptions(immutable, timeZone, ""), false, Nil$.MODULE$);
        }
        return reader;
    }

    /** Hands Spark's reader the parser that it is called with. */
    private static final AbstractFunction2 AS_IT_IS = new AbstractFunction2() {
        public Object apply(Object factory, Object parser) {
            return parser;
        }
    };

    /** The text of a value that Spark's reader refuses, which is not asked for. */
    private static final AbstractFunction1 NO_TEXT = new AbstractFunction1() {
        public Object apply(Object parser) {
            return UTF8String.EMPTY_UTF8;
        }
    };

    /** Whether Jackson would guess from the first bytes that the text is in UTF-16 or UTF-32, or skip a mark. */
    private static boolean isOtherEncoding(byte[] bytes) {
        for (int i = 0; i < 4 && i < bytes.length; i++) {
            if (bytes[i] == 0) {
                return true;
            }
        }
        return bytes.length > 0 && bytes[0] == (byte) 0xEF;
    }

    /** An object or array whose end is not read yet. */
    private static final class Open {
        final Open outer;
        final int start;
        /** Entries of an object, or offsets of an array's elements. */
        final ArrayList items = new ArrayList();
        final boolean isObject;

        Open(Open outer, int start, boolean isObject) {
            this.outer = outer;
            this.start = start;
            this.isObject = isObject;
        }
    }

    /** A parser that builds a VARIANT of the tokens which are read from it, and looks at each text and number once. */
    private static final class Parser extends JsonParserDelegate {
        boolean isInexact = false;
        int decimals = 0;
        boolean hasOddTime = false;
        private final VariantBuilder builder = new VariantBuilder(false);
        private Open open = null;
        private boolean hasBegun = false;

        Parser(JsonParser parser) {
            super(parser);
        }

        /** Reads what is left. There must have been one value. */
        void readToEnd() throws IOException {
            while (nextToken() != null) {
                continue;
            }
            delegate.close();
        }

        Variant result() throws IOException {
            if (!hasBegun) {
                throw new IOException("there is no value");
            }
            return builder.result();
        }

        /** Spark's reader closes the parser after the value; there may be more behind it. */
        public void close() {
        }

        public JsonParser skipChildren() throws IOException {
            int depth = delegate.currentToken().isStructStart() ? 1 : 0;
            while (depth > 0) {
                JsonToken token = nextToken();
                depth += token.isStructStart() ? 1 : token.isStructEnd() ? -1 : 0;
            }
            return this;
        }

        public JsonToken nextToken() throws IOException {
            JsonToken token = delegate.nextToken();
            if (token == null) {
                return null;
            }
            if (token == JsonToken.FIELD_NAME) {
                String key = valid(delegate.currentName());
                open.items.add(new VariantBuilder.FieldEntry(
                    key, builder.addKey(key), builder.getWritePos() - open.start));
                return token;
            }
            if (token == JsonToken.END_OBJECT || token == JsonToken.END_ARRAY) {
                if (open.isObject) {
                    builder.finishWritingObject(open.start, open.items);
                } else {
                    builder.finishWritingArray(open.start, open.items);
                }
                open = open.outer;
                return token;
            }
            if (open == null) {
                if (hasBegun) {
                    throw new IOException("there is a second value");
                }
                hasBegun = true;
            } else if (!open.isObject) {
                open.items.add(Integer.valueOf(builder.getWritePos() - open.start));
            }
            if (token == JsonToken.START_OBJECT || token == JsonToken.START_ARRAY) {
                open = new Open(open, builder.getWritePos(), token == JsonToken.START_OBJECT);
            } else {
                addScalar(token);
            }
            return token;
        }

        private void addScalar(JsonToken token) throws IOException {
            if (token == JsonToken.VALUE_STRING) {
                addText(valid(delegate.getText()));
            } else if (token == JsonToken.VALUE_NUMBER_INT) {
                addInteger();
            } else if (token == JsonToken.VALUE_NUMBER_FLOAT) {
                addNumber(delegate.getText());
            } else if (token == JsonToken.VALUE_NULL) {
                builder.appendNull();
            } else {
                builder.appendBoolean(token == JsonToken.VALUE_TRUE);
            }
        }

        private void addText(String text) {
            builder.appendString(text);
            if (!text.isEmpty()) {
                char first = text.charAt(0);
                if (first <= '9' || first == 'T' || first > 127) {
                    hasOddTime = hasOddTime || isTimeOfDay(text);
                    lookAtNumber(text);
                }
            }
        }

        private void addInteger() throws IOException {
            long value;
            try {
                value = delegate.getLongValue();
            } catch (InputCoercionException error) {
                addNumber(delegate.getText());
                return;
            }
            builder.appendLong(value);
            if (value > LAST_SECOND || value < -LAST_SECOND) {
                hasOddTime = true;
            }
        }

        /** As a decimal where there is one of 38 digits, else as a double. */
        private void addNumber(String text) {
            lookAtNumber(text);
            int digits = 0;
            boolean isZero = true;
            boolean hasExponent = false;
            for (int i = 0; i < text.length() && !hasExponent; i++) {
                char c = text.charAt(i);
                hasExponent = c == 'e' || c == 'E';
                if (c >= '0' && c <= '9') {
                    digits++;
                    isZero = isZero && c == '0';
                }
            }
            if (!hasExponent) {
                BigDecimal decimal = new BigDecimal(text);
                if (decimal.scale() <= DECIMAL_DIGITS && decimal.precision() <= DECIMAL_DIGITS) {
                    builder.appendDecimal(decimal);
                    return;
                }
            }
            double value = Double.parseDouble(text);
            if (digits > (hasExponent ? DOUBLE_DIGITS : DECIMAL_DIGITS) || Double.isInfinite(value)
                    || value == 0 && !isZero) {
                isInexact = true;
            }
            builder.appendDouble(value);
        }

        /** Refuses half of a surrogate pair: it can be escaped in JSON, and has no UTF-8. */
        private static String valid(String text) throws IOException {
            for (int i = 0; i < text.length(); i++) {
                if (Character.isSurrogate(text.charAt(i))) {
                    if (i + 1 == text.length() || !Character.isSurrogatePair(text.charAt(i), text.charAt(i + 1))) {
                        throw new IOException("there is half of a surrogate pair");
                    }
                    i++;
                }
            }
            return text;
        }

        /** Notes a number's decimals and size; whatever may be a number for some reader counts as one. */
        private void lookAtNumber(String text) {
            int wholes = 0;
            int places = 0;
            int used = 0;
            boolean hasPoint = false;
            boolean hasExponent = false;
            for (int i = 0; i < text.length(); i++) {
                char c = text.charAt(i);
                if (c >= '0' && c <= '9' || c > 127) {
                    if (!hasPoint) {
                        wholes++;
                    } else {
                        places++;
                        used = c == '0' ? used : places;
                    }
                } else if (c == '.') {
                    hasPoint = true;
                } else if (c == 'e' || c == 'E') {
                    hasExponent = true;
                } else if (c != '-' && c != '+' && c > ' ') {
                    return;
                }
            }
            decimals = Math.max(decimals, hasExponent ? EXPONENT : used);
            if (hasExponent || wholes > 11) {
                hasOddTime = true;
            }
        }

        private static boolean isTimeOfDay(String text) {
            int at = 0;
            while (at < text.length() && text.charAt(at) <= ' ') {
                at++;
            }
            if (at < text.length() && text.charAt(at) == 'T') {
                at++;
            }
            int digits = 0;
            while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
                at++;
                digits++;
            }
            return digits > 0 && digits < 3 && at < text.length() && text.charAt(at) == ':';
        }
    }
}
