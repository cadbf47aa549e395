package zync;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.util.JsonParserDelegate;
import java.io.IOException;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.catalyst.expressions.GenericRow;
import org.apache.spark.types.variant.Variant;
import org.apache.spark.types.variant.VariantBuilder;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;

/**
 * Parses bytes as one JSON value, in one pass, and changes nothing in silence.
 *
 * Spark's own parse_json ignores text after the value, replaces bytes that are not UTF-8, and rounds numbers that a
 * double does not hold. Here each is an error.
 *
 * The result is a struct (zync/spark/strict_json.py has its type):
 *
 * - value: the VARIANT; null where the bytes are not one JSON value.
 * - error: null, or text that continues a sentence: "is not UTF-8", "is not one JSON value", or "has a number that
 *   cannot be kept exactly", where the value is not null.
 * - decimals: the most decimals of a number, in a string or not, without zeros at its end; 99 for an exponent.
 * - odd_time: whether there is a number beyond the last second of the year 9999, or a text with a time and no date.
 *
 * By the last two a topic with a schema sees whether a cast to it may have changed a value.
 *
 * zync compiles this file by Janino, which Spark contains (zync/java.py).
 */
public class StrictJson implements UDF1 {
    /** Records share its table of names, so it neither interns them nor fails where many are alike. */
    private static final JsonFactory FACTORY = new JsonFactory()
        .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
        .disable(JsonFactory.Feature.FAIL_ON_SYMBOL_HASH_OVERFLOW);
    private static final int DECIMAL_DIGITS = 38;
    private static final int DOUBLE_DIGITS = 17;
    private static final int EXPONENT = 99;
    private static final long LAST_SECOND = 253402300799L;

    public Object call(Object json) {
        if (json == null) {
            return null;
        }
        byte[] bytes = (byte[]) json;
        if (!UTF8String.fromBytes(bytes).isValid()) {
            return failure("is not UTF-8");
        }
        try {
            if (!isOtherEncoding(bytes)) {
                Parser parser = new Parser(FACTORY.createParser(bytes));
                try {
                    parser.nextToken();
                    Variant value = VariantBuilder.parseJson(parser, false, true);
                    if (parser.nextToken() == null) {
                        return parser.result(value);
                    }
                } finally {
                    parser.close();
                }
            }
        } catch (IOException error) {
            // As below: it is no JSON.
        } catch (RuntimeException error) {
            // An object has a key twice, or the value is too large for a VARIANT.
        }
        return failure("is not one JSON value");
    }

    private static Object failure(String error) {
        return new GenericRow(new Object[] {null, error, Integer.valueOf(0), Boolean.FALSE});
    }

    /** Whether Jackson would guess from the first bytes that the text is in UTF-16 or UTF-32, or skip a mark. */
    private static boolean isOtherEncoding(byte[] bytes) {
        for (int i = 0; i < 4 && i < bytes.length; i++) {
            if (bytes[i] == 0) {
                return true;
            }
        }
        return bytes.length > 0 && bytes[0] == (byte) 0xEF;
    }

    /** A parser that looks at what VariantBuilder reads from it: each text and number once. */
    private static final class Parser extends JsonParserDelegate {
        private boolean isInexact = false;
        private int decimals = 0;
        private boolean hasOddTime = false;

        Parser(JsonParser parser) {
            super(parser);
        }

        Object result(Variant value) {
            VariantVal variant = new VariantVal(value.getValue(), value.getMetadata());
            String error = isInexact ? "has a number that cannot be kept exactly" : null;
            return new GenericRow(
                new Object[] {variant, error, Integer.valueOf(decimals), Boolean.valueOf(hasOddTime)});
        }

        public long getLongValue() throws IOException {
            long value = delegate.getLongValue();
            if (value > LAST_SECOND || value < -LAST_SECOND) {
                hasOddTime = true;
            }
            return value;
        }

        public String getText() throws IOException {
            String text = delegate.getText();
            if (text != null && !text.isEmpty()) {
                char first = text.charAt(0);
                if (first <= '9' || first == 'T' || first > 127) {
                    if (delegate.currentToken() == JsonToken.VALUE_STRING) {
                        hasOddTime = hasOddTime || isTimeOfDay(text);
                    }
                    lookAtNumber(text);
                }
            }
            return text;
        }

        /** VariantBuilder asks for a number's double where it has too many digits for a decimal, or an exponent. */
        public double getDoubleValue() throws IOException {
            String text = delegate.getText();
            double value = Double.parseDouble(text);
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
            if (digits > (hasExponent ? DOUBLE_DIGITS : DECIMAL_DIGITS) || Double.isInfinite(value)
                    || value == 0 && !isZero) {
                isInexact = true;
            }
            return value;
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
